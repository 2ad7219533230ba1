//go:build vm

package vm_test

import (
	"sync"
	"testing"
	"time"
)

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
