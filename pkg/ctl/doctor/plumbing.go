package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/validate"
)

func plugin(e *Evidence, list *findings) {
	p, there := e.Live.Plugins[validate.Plugin]
	const install = "run devinfoctl install --cni-bin-dir DIR, or let devinfo-agent install it"
	switch {
	case !there:
		list.add(Error, "the devinfo plugin is not in "+strings.Join(e.Live.PluginDirs, " or "), install)
	case p.Problem != "":
		list.add(Error, p.Path+": "+p.Problem, install)
	case !p.Build.Same(e.Asking):
		list.add(Warning, fmt.Sprintf("%s is %s, and this program is %s", p.Path, p.Build, e.Asking), install+", so that both have the same version")
	}
}

// nodeSettings reports node settings that cannot be used. Every ADD needs valid node settings.
func nodeSettings(e *Evidence, list *findings) {
	if e.NodeFile != "" {
		list.add(Error, e.NodeFile, "correct the file, because every ADD fails")
	}
}

func networks(e *Evidence, list *findings) {
	if e.Live.NoConf != "" {
		list.add(Unknown, e.Live.NoConf+": no such file or directory", MountMore)
		return
	}
	if len(e.Live.Networks) == 0 {
		list.add(Info, "no network configuration on this node contains devinfo", "check the networks in the API: kubectl get net-attach-def -A -o yaml | devinfoctl validate -")
	}
	for _, n := range e.Live.Networks {
		for _, finding := range n.Findings {
			level := Error
			if finding.Warning {
				level = Warning
			}
			list.add(level, n.Path+": "+finding.String(), "correct the file, then run devinfoctl validate "+n.Path)
		}
	}
}

func directories(e *Evidence, list *findings) {
	for _, path := range slices.Sorted(maps.Keys(e.Live.Missing)) {
		by := "with --cni-path"
		if path == e.CDIDir {
			by = "with cdiDir in the node settings"
		}
		list.add(Warning, path+": "+e.Live.Missing[path], "create it, or name another directory "+by+"; in a container, mount it")
	}
	for _, path := range e.Live.ReadOnly {
		level, fails, keys := Error, "every ADD fails", "stateDir or deviceInfoDir"
		if path == e.CDIDir {
			level, fails, keys = Warning, `ADD of networks with "cdi" fails`, "cdiDir"
		}
		if e.Live.Missing[path] == "" { // otherwise it is reported already
			list.add(level, path+": is on a read-only file system, so "+fails, "mount it read-write, or set "+keys+" in the node settings to a directory on another file system; in a container, mount that")
		}
	}
	if e.Live.NFS {
		list.add(Error, "stateDir is on NFS, where files cannot be locked, so every DEL fails", "set stateDir in the node settings to a directory on a local disk")
	}
	if e.Live.Exposed != "" {
		list.add(Error, e.Live.Exposed+": ADD and GC fail, and DEL ignores the journal", journal.OwnRemedy)
	}
	// The defaults of cdi_spec_dirs in containerd (docs/cri/config.md) and of CRI-O (docs/crio.conf.5.md).
	if usual := []string{"/etc/cdi", "/var/run/cdi", "/run/cdi"}; e.CDIDir != "" && !slices.Contains(usual, e.CDIDir) {
		list.add(Warning, e.CDIDir+": is not a directory where container runtimes look for CDI specs by default",
			"add it to cdi_spec_dirs of the runtime, or set cdiDir in the node settings to /var/run/cdi")
	}
}

// runtime checks for NRI, because cni-dra-driver and devinfo-agent learn of pods only through it. Its defaults are in docs/NRI.md
// of containerd and in docs/crio.conf.5.md of CRI-O.
func runtime(e *Evidence, list *findings) {
	const enable = "enable NRI: containerd has it on from 2.0, CRI-O from 1.30; in containerd 1.7 set disable = false in plugins.\"io.containerd.nri.v1.nri\""
	switch {
	case e.Live.NRI:
	case e.DRA:
		list.add(Error, "the container runtime has no NRI socket, and cni-dra-driver needs it", enable)
	default:
		list.add(Info, "the container runtime has no NRI socket; cni-dra-driver and the injection of devinfo-agent need it", enable)
	}
}

// offer checks the rules for the devices that cni-dra-driver offers. A rule that matches no device may be meant for
// other nodes.
func offer(e *Evidence, list *findings) {
	switch {
	case e.Offer == nil:
		return
	case e.driverAway() && e.Offer.Problem == "":
		list.add(Info, DriverAway, "")
		return
	case e.Offer.Problem != "":
		list.add(Error, "cni-dra-driver: "+e.Offer.Problem, CorrectRules)
		return
	}
	for _, idle := range e.Offer.Unmatched {
		list.add(Info, e.Offer.Rules+": "+idle.String(),
			"correct the rule and restart cni-dra-driver, unless it is meant for other nodes; devinfoctl topology shows the devices of this node")
	}
}

// DriverAway is the text of the check "offer" if cni-dra-driver does not run.
const DriverAway = "cni-dra-driver does not run on this node, so it offers no devices"

// CorrectRules is the remedy for invalid rules.
const CorrectRules = "correct the rules, and restart cni-dra-driver, which reads them when it starts"

// offered returns the number of offered devices as text; "" = there is no offer.
func offered(e *Evidence) string {
	if e.Offer == nil {
		return ""
	}
	offered := 0
	for _, d := range e.Offer.Devices {
		if d.Why == "" {
			offered++
		}
	}
	return Count(offered, "device") + " offered by the rules"
}

func sight(e *Evidence, list *findings) {
	if e.Unseen > 0 {
		list.add(Unknown, fmt.Sprintf("cni-dra-driver's records of %d claims with leases are not visible here", e.Unseen),
			"run devinfoctl doctor on the node itself, or in cni-dra-driver's pod")
	}
	if e.Live == nil {
		return // the checks report missing live facts
	}
	for _, note := range e.Live.Notes {
		list.add(Unknown, note.Text, note.Remedy)
	}
}
