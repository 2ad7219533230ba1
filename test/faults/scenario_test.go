package faults_test

import (
	"maps"
	"os/exec"
	"slices"
	"strings"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/node"
)

// A scenario is a command on the node.
type scenario struct {
	name    string
	before  func(*world) // what happened before; nil = nothing
	command func(*world) *exec.Cmd
	settles bool // it changes the node, and a second run changes nothing more
}

func ctl(args ...string) scenario {
	return scenario{name: "devinfoctl " + strings.Join(args, " "), command: func(w *world) *exec.Cmd { return w.tool("devinfoctl", args...) }}
}

func plugin(verb string, before func(*world), more conf) scenario {
	return scenario{name: "devinfo " + verb, before: before, command: func(w *world) *exec.Cmd {
		c := ours.conf(vf)
		maps.Copy(c, more)
		return w.call(verb, ours, c)
	}}
}

func added(w *world) { w.t.Helper(); w.must("ADD", ours, vf) }

// misnamed adds our attachment, whose file is named after the container of others.
func misnamed(w *world) {
	w.t.Helper()
	c := ours.conf(vf)
	c["runtimeConfig"] = conf{"CNIDeviceInfoFile": infoDir + "/default-net-" + others.container + "_net5"}
	if got := w.execute(w.call("ADD", ours, c), nil); got.Exit != 0 {
		w.t.Fatal(got.Stdout)
	}
}

// injected starts a container of others, then changes what it should see.
func injected(w *world) {
	w.t.Helper()
	if got := w.execute(w.tool("create-container"), nil); got.Exit != 0 {
		w.t.Fatal(got.Stderr)
	}
	w.must("ADD", attachment{others.container, "net2", others.netns, others.uid}, vf)
}

// refused gives the node settings that every program refuses.
func refused(w *world) {
	w.t.Helper()
	difftest.Write(w.t, node.Settings, `{"stateDir": "relative"}`, 0o644)
	difftest.Write(w.t, "/run/agent/lock", "", 0o600)
}

// collected frees the device of the ended pod.
func collected(w *world) {
	w.t.Helper()
	if got := w.execute(ctl("gc", "--yes").command(w), nil); got.Exit != 0 {
		w.t.Fatal(got.Stdout, got.Stderr)
	}
}

func uninstall(flags ...string) func(*world) *exec.Cmd {
	return func(w *world) *exec.Cmd {
		return w.tool("devinfo-agent", append(flags, "--uninstall", "--cni-bin-dir="+node.Bin, "--node-config="+node.Settings, "--run-dir=/run/agent", "--nri-socket=/run/nri.sock")...)
	}
}

var scenarios = slices.Concat([]scenario{
	settled(plugin("ADD", nil, nil)),
	settled(plugin("DEL", added, nil)),
	{name: "devinfo CHECK", command: func(w *world) *exec.Cmd {
		c := others.conf(othersVF)
		c["prevResult"] = w.result
		return w.call("CHECK", others, c)
	}},
	settled(scenario{name: "devinfo GC", command: func(w *world) *exec.Cmd {
		return w.call("GC", attachment{}, conf{"cniVersion": "1.1.0", "name": "net", "type": "devinfo",
			"cni.dev/valid-attachments": []any{conf{"containerID": others.container, "ifname": others.ifName}}})
	}}),
	{name: "devinfo STATUS", command: func(w *world) *exec.Cmd { return w.call("STATUS", attachment{}, others.conf(othersVF)) }},
	settled(ctl("gc", "--yes")),
	settled(ctl("gc", "--claim", "uid-gone", "--yes")),
	settled(scenario{name: "devinfo-agent --uninstall", command: uninstall("--force")}),
	settled(scenario{name: "devinfo-agent, create-container", command: func(w *world) *exec.Cmd { return w.tool("create-container") }}),
	settled(scenario{name: "devinfo-agent, another's file", before: misnamed, command: func(w *world) *exec.Cmd { return w.tool("create-container") }}),
	settled(scenario{name: "devinfo-agent, refresh", before: injected, command: func(w *world) *exec.Cmd { return w.tool("refresh") }}),
	{name: "devinfo-agent --uninstall, refused settings", before: refused, command: uninstall()},
	settled(scenario{name: "devinfo-agent, agent-round", command: func(w *world) *exec.Cmd { return w.tool("agent-round") }}),
	settled(scenario{name: "cni-dra-driver, publish", command: func(w *world) *exec.Cmd { return w.tool("driver-publish") }}),
	settled(scenario{name: "cni-dra-driver, prepare", before: collected, command: func(w *world) *exec.Cmd { return w.tool("driver-prepare") }}),
}, reading)

var reading = []scenario{
	ctl("list", "-o", "json"),
	ctl("list"),
	ctl("check"),
	ctl("gc", "--dry-run"),
	ctl("inspect", othersVF, "-o", "json"),
	ctl("inspect", "net1", "--netns", others.netns),
	ctl("doctor"),
	ctl("topology"),
	ctl("offered"),
	ctl("capture", "--name", "n1", "-o", "-"),
	{name: "cni-dra-driver inventory", command: func(w *world) *exec.Cmd {
		return w.tool("cni-dra-driver", "inventory", "--node-config", node.Settings, "-o", "yaml")
	}},
}

func settled(s scenario) scenario {
	s.settles = true
	return s
}

// changed returns the files of others that have another content than before, unless they have it without the fault too.
func changed(before, now, clean node.Snapshot) (problems []string) {
	for _, path := range slices.Sorted(maps.Keys(before)) {
		is, there := now[path]
		want, stays := clean[path]
		switch {
		case strings.HasPrefix(path, "/run/state/lock"):
		case !there && stays:
			problems = append(problems, "gone: "+path)
		case there && is != before[path] && stays && want == before[path]:
			problems = append(problems, "changed: "+path)
		}
	}
	return problems
}

// lacking returns the files that do not exist, or have another content, although they are there without the fault.
func lacking(now, clean node.Snapshot) (problems []string) {
	for _, path := range slices.Sorted(maps.Keys(clean)) {
		if is, there := now[path]; !there {
			problems = append(problems, "missing: "+path)
		} else if want := mask(clean[path].Text); mask(is.Text) != want {
			problems = append(problems, "another content: "+path+":\n"+difference(want, mask(is.Text)))
		}
	}
	return problems
}
