//go:build vm

package vm_test

import (
	"path/filepath"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
)

// The VF goes while the pod has it, and the slices say that the node has lost it. Both plugins
// fail to DEL it: sriov once, host-device for ever, so that an administrator is to clear that.
func TestDRAVFUnpluggedWhileAttached(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	n := newDRANode(t, draRules)
	for _, test := range []struct {
		name, plugins string
		givenUp       bool
	}{
		{"sriov", `{"type": "sriov", "vlan": 7}`, false}, {"host-device", `{"type": "host-device"}, ` + devinfoLast, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := n.in(t)
			p := n.podWith("late-"+test.name, vf41, draNetwork(test.plugins))
			p.begin()
			n.follows("unplugged from "+p.name, vf41, func() { write(t, toPF41+"sriov_numvfs", "0") }, func(d map[string]resourceapi.Device) bool {
				_, other := d[v2]
				return !other && len(d[vf41].Taints) == 1 && d[vf41].Taints[0].Key == "devinfo-cni.io/gone"
			})
			p.end()
			n.follows("plugged in after "+p.name, pf41, func() { vfsBack(t) }, func(d map[string]resourceapi.Device) bool {
				return names(d) == machineDevices && d[vf41].Taints == nil && value(d[vf41].Attributes["devinfo-cni.io/ifName"]) == "enp65s0v0"
			})
			recorded := func() bool {
				records, _ := filepath.Glob(pluginDir + "/state/" + p.claim().Uid + "=*.json")
				return len(records) > 0
			}
			if recorded() != test.givenUp {
				t.Errorf("DEL was given up: %v", recorded())
			}
			if test.givenUp {
				run(t, plugins+"/cni-dra-driver", "clear", p.claim().Uid)
				n.eventually("what was given up is forgotten", patient, func() bool { return !recorded() })
			}
		})
	}
}

// A port that is no PCI function comes back as the pod named it, while something else has its
// name: it is not offered until it has that again.
func TestDRAPortIsWithheldUnderAnotherName(t *testing.T) {
	needs(t, "nsim")
	n := newDRANode(t, "devices:\n- ifNames: [eni1np1]\n  as: exclusive\n")
	const device = "dev-netdevsim-netdevsim1-p1"
	p := n.podWith("port", device, draNetwork(`{"type": "host-device"}`))
	p.begin()
	run(t, "ip", "link", "add", "eni1np1", "type", "dummy")
	free := sync.OnceFunc(func() { run(t, "ip", "link", "del", "eni1np1") })
	t.Cleanup(free)
	began := time.Now()
	p.dropNetns()
	p.stop()
	p.remove()
	n.eventually("the port is back, and withheld", patient, func() bool {
		offered, _ := n.offered()
		return onHost("net1") && len(offered) == 0
	})
	free()
	p.unprepare()
	n.eventually("the port is offered again", patient, func() bool {
		offered, _ := n.offered()
		return value(offered[device].Attributes["devinfo-cni.io/ifName"]) == "eni1np1"
	})
	for _, w := range n.since(began) {
		for _, d := range w.slice.Spec.Devices {
			if d.Name == device && value(d.Attributes["devinfo-cni.io/ifName"]) != "eni1np1" {
				t.Errorf("it was offered as %s", text(d))
			}
		}
	}
}
