package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/ctl/validate"
)

// plugin looks at the plugin that is installed.
func plugin(f *Evidence) []Answer {
	if f.Live == nil {
		return unseen("which plugins are installed")
	}
	p, there := f.Live.Plugins["devinfo"]
	const install = "devinfoctl install --cni-bin-dir DIR, or let devinfo-agent install it"
	switch {
	case !there:
		return []Answer{{Level: Error, Text: "the devinfo plugin is not in " + strings.Join(f.Live.PluginDirs, " or "), Remedy: install}}
	case p.Problem != "":
		return []Answer{{Level: Error, Text: p.Path + ": " + p.Problem, Remedy: install}}
	case !p.Build.Same(f.Asking):
		return []Answer{{
			Level: Warning, Text: fmt.Sprintf("%s is %s, and this program is %s", p.Path, p.Build, f.Asking), Remedy: install + ", so that both are of the same",
		}}
	}
	return altered(f, p.Path)
}

// altered looks whether a file is as devinfo-agent put it in place.
func altered(f *Evidence, path string) []Answer {
	if f.Live == nil || !slices.Contains(f.Live.Altered, path) {
		return nil
	}
	return []Answer{{Level: Warning, Text: path + " is not as devinfo-agent put it in place", Remedy: "see that devinfo-agent runs on this node, which mends it, or why its /healthz says that it cannot"}}
}

// settings looks at node.json, without which ADD fails.
func settings(f *Evidence) []Answer {
	if f.NodeFile == "" {
		return altered(f, f.NodeConfig)
	}
	return []Answer{{Level: Error, Text: f.NodeFile, Remedy: "correct the file: every ADD fails with it"}}
}

// networks says all that is wrong in the network configurations of the node.
func networks(f *Evidence) (list []Answer) {
	switch {
	case f.Live == nil:
		return unseen("the network configurations")
	case len(f.Live.Networks) == 0:
		return []Answer{{Level: Info, Text: "no network configuration on this node has devinfo in it", Remedy: "those in the API are checked by: kubectl get net-attach-def -A -o yaml | devinfoctl validate -"}}
	}
	checker := validate.Checker{Plugin: ours, Versions: func(plugin string) []string { return f.Live.Plugins[plugin].CNIVersions }}
	for _, n := range f.Live.Networks {
		report, err := checker.Check(n.Text, validate.CNIConfig)
		if err != nil { // the kind is given
			continue
		}
		for _, finding := range report.Findings {
			level := Error
			if finding.Warning {
				level = Warning
			}
			list = append(list, Answer{Level: level, Text: n.Path + ": " + finding.String(), Remedy: "correct the file; devinfoctl validate " + n.Path + " looks again"})
		}
	}
	return list
}

// directories looks for those that CNI and CDI need.
func directories(f *Evidence) (list []Answer) {
	if f.Live == nil {
		return unseen("the directories of CNI and CDI")
	}
	for _, path := range slices.Sorted(maps.Keys(f.Live.Missing)) {
		by := "by --cni-conf-dir"
		switch {
		case path == f.CDIDir:
			by = "by cdiDir of the node settings"
		case slices.Contains(f.Live.PluginDirs, path):
			by = "by --cni-path"
		}
		list = append(list, Answer{Level: Warning, Text: path + ": " + f.Live.Missing[path], Remedy: "create it, or name the right one " + by + "; in a container it must be mounted"})
	}
	for _, path := range f.Live.ReadOnly {
		if f.Live.Missing[path] != "" { // said already
			continue
		}
		a := Answer{Level: Error, Text: path + ": is on a read-only file system: every ADD fails", Remedy: "mount it read-write, or name another: stateDir, deviceInfoDir of the node settings; in a container it must be mounted"}
		if path == f.CDIDir {
			a.Level, a.Text, a.Remedy = Warning, path+": is on a read-only file system: ADD of networks with \"cdi\" fails", strings.Replace(a.Remedy, "stateDir, deviceInfoDir", "cdiDir", 1)
		}
		list = append(list, a)
	}
	usual := []string{"/etc/cdi", "/var/run/cdi", "/run/cdi"}
	if f.CDIDir != "" && !slices.Contains(usual, f.CDIDir) {
		list = append(list, Answer{
			Level: Warning, Text: f.CDIDir + ": is not a directory where container runtimes look for CDI specs by default",
			Remedy: "add it to cdi_spec_dirs of the runtime, or set cdiDir in the node settings to /var/run/cdi",
		})
	}
	return list
}

// runtime looks for NRI, without which cni-dra-driver and devinfo-agent hear of no pod.
func runtime(f *Evidence) []Answer {
	const enable = "enable NRI: containerd has it on from 2.0, CRI-O from 1.30; in containerd 1.7 set disable = false in plugins.\"io.containerd.nri.v1.nri\""
	switch {
	case f.Live == nil:
		return unseen("NRI")
	case f.Live.NRI:
		return nil
	case f.DRA:
		return []Answer{{Level: Error, Text: "the container runtime has no NRI socket, and cni-dra-driver needs it", Remedy: enable}}
	case f.Live.Agent:
		return []Answer{{
			Level: Warning, Text: "the container runtime has no NRI socket: containers get no device information from devinfo-agent",
			Remedy: enable + "; or run the agent with --inject=false, if that is what you want",
		}}
	}
	return []Answer{{Level: Info, Text: "the container runtime has no NRI socket: cni-dra-driver and devinfo-agent's injection would need one"}}
}

// offer looks at the rules by which cni-dra-driver offers the node's devices. One that names
// none may be meant for other nodes.
func offer(f *Evidence) (list []Answer) {
	switch {
	case f.Offer == nil:
		return nil
	case f.Offer.Problem != "":
		return []Answer{{Level: Error, Text: "cni-dra-driver: " + f.Offer.Problem, Remedy: "correct the rules: cni-dra-driver does not start with these"}}
	}
	for _, idle := range f.Offer.Idle {
		list = append(list, Answer{
			Level: Info, Text: f.Offer.Rules + ": " + idle.Rule + " names no device of this node: " + idle.Why,
			Remedy: "correct the rule, unless it is meant for other nodes; devinfoctl topology shows this one's devices",
		})
	}
	return list
}

// sight reports what could not be checked.
func sight(f *Evidence) (list []Answer) {
	if f.Unseen > 0 {
		list = append(list, Answer{
			Level: Unknown, Text: fmt.Sprintf("cni-dra-driver's records of %d claims with leases cannot be seen from here", f.Unseen),
			Remedy: "run it on the node itself, or in cni-dra-driver's pod",
		})
	}
	if f.Live == nil {
		return list // each check says it
	}
	for _, note := range f.Live.Notes {
		list = append(list, Answer{Level: Unknown, Text: note.Text, Remedy: note.Remedy})
	}
	return list
}

func unseen(what string) []Answer {
	return []Answer{{Level: Unknown, Text: what + ": not in the capture", Remedy: "capture the host with this devinfoctl"}}
}
