//go:build vm

package vm_test

import (
	"os"
	"testing"
)

// The agent is killed between any two steps of a pod's life, or is away while the pod ends, and
// nothing is lost.
func TestDRAAgentKilledBetweenAnyTwoSteps(t *testing.T) {
	needs(t, "igb")
	n := newDRANode(t, draRules)
	for _, test := range []struct {
		name, parameters, driver string
		away                     bool
	}{
		{"sriov", draNetwork(`{"type": "sriov", "vlan": 7}, ` + devinfoLast), "igbvf", false},
		{"vfio", `"driver": "vfio-pci", ` + draNetwork(`{"type": "sriov"}`), "vfio-pci", false},
		{"away", draNetwork(`{"type": "sriov", "vlan": 7}`), "igbvf", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Cleanup(func() { vfsBack(t) }) // a VF whose MAC the PF has set takes none from its pod
			n := n.in(t)
			const address = "0000:41:10.0"
			was := stateOf(t, address)
			p := n.podWith("killed-"+test.name, vf41, test.parameters)
			p.prepare()
			n.restart()
			p.up()
			n.restart()
			same(t, "driver", stateOf(t, address).Driver, test.driver)
			if test.driver == "igbvf" && !inPod(p.sandbox.Id, "net1") {
				t.Error("the VF is no longer in the pod")
			}
			p.prepare() // as a kubelet that was restarted does
			p.container()
			if test.away {
				spoil(t, p.sandbox.Id)
				n.kill()
				p.stop()
				p.remove()
				n.start()
			} else {
				p.stop()
				n.restart()
				p.remove()
			}
			p.unprepare()
			n.restart()
			backAs(t, address, was)
			n.published(vf41)
		})
	}
}

// pausePlugin is a CNI plugin that does nothing until a file is gone.
const pausePlugin = `#!/bin/sh
cat >/dev/null
[ "$CNI_COMMAND" != "$(cat /run/pause 2>/dev/null)" ] || { touch /run/paused; while [ -e /run/pause ]; do sleep 0.1; done; }
[ "$CNI_COMMAND" != ADD ] || echo '{"cniVersion": "1.1.0"}'
`

func canPause(t *testing.T) {
	t.Helper()
	ok(t, "plugin", os.WriteFile(plugins+"/pause", []byte(pausePlugin), 0o755))
	t.Cleanup(func() {
		for _, file := range []string{plugins + "/pause", "/run/pause", "/run/paused"} {
			os.Remove(file)
		}
	})
}

// The agent is killed while a plugin of its runs: the next one waits for the plugin, takes
// back what was done, and begins again.
func TestDRAAgentKilledWhileAPluginRuns(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	n := newDRANode(t, draRules)
	canPause(t)
	const address = "0000:41:10.0"
	was := stateOf(t, address)
	p := n.podWith("running", vf41, draNetwork(`{"type": "pause"}, {"type": "sriov", "vlan": 7}`))
	p.prepare()
	p.newSandbox()
	var failed error
	n.killDuring("ADD", func() { failed = p.runSandbox() })
	if failed != nil { // the runtime makes the sandbox anew
		p.stop()
		p.remove()
		p.up()
	}
	n.eventually("its container may start", patient, func() bool { _, err := p.tryContainer(); return err == nil })
	if !inPod(p.sandbox.Id, "net1") {
		t.Error("the VF is not in the pod")
	}
	n.killDuring("DEL", p.stop)
	p.remove()
	p.unprepare()
	backAs(t, address, was)
}

// killDuring kills the agent while the plugin "pause" runs for a verb, and starts the next.
func (n *draNode) killDuring(verb string, step func()) {
	n.t.Helper()
	n.during(verb, step, n.kill)
	n.start()
	os.Remove("/run/pause")
}

// during does something while the plugin "pause" runs for a verb, as part of a step. The step runs
// in a goroutine of its own, and must not end the test.
func (n *draNode) during(verb string, step, does func()) {
	n.t.Helper()
	write(n.t, "/run/pause", verb)
	os.Remove("/run/paused")
	done := make(chan struct{})
	go func() { defer close(done); step() }()
	n.eventually(verb+" is under way", patient, func() bool { return exists("/run/paused") })
	does()
	<-done
}
