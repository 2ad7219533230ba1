//go:build vm

package vm_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/link"
)

// follows has something happen to the machine, and wants the slices to follow its events.
// Only the slice is rewritten of which that device is; "" = whichever.
func (n *draNode) follows(what, device string, happen func(), holds func(map[string]resourceapi.Device) bool) {
	n.t.Helper()
	_, in := n.offered()
	ctx, stop := context.WithCancel(n.t.Context())
	defer stop()
	events, err := link.Events(ctx)
	must(n.t, err)
	first := make(chan time.Time, 1)
	go func() { <-events; first <- time.Now() }()
	began := time.Now()
	happen()
	n.eventually(what, longest, func() bool { devices, _ := n.offered(); return holds(devices) })
	writes := n.since(began)
	if len(writes) == 0 {
		n.t.Fatalf("%s: it was so before", what)
	}
	fmt.Printf("%s: the last of %d writes is %v after the first event\n", what, len(writes), writes[len(writes)-1].at.Sub(<-first).Round(10*time.Millisecond))
	for _, w := range writes {
		if device != "" && (w.verb != "update" || w.slice.Name != in[device]) {
			n.t.Errorf("%s: %s of slice %s, where only %s should be rewritten", what, w.verb, w.slice.Name, in[device])
		}
	}
}

const (
	pf41     = "pci-0000-41-00-0"
	vf41, v2 = "pci-0000-41-10-0", "pci-0000-41-10-2"
	toPF41   = "/sys/bus/pci/devices/0000:41:00.0/"
)

func TestDRASlicesFollowTheMachine(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	t.Cleanup(func() { cardBack(t) })
	n := newDRANode(t, draRules)
	complete := func(d map[string]resourceapi.Device) bool {
		return names(d) == machineDevices && value(d[vf41].Attributes["devinfo-cni.io/ifName"]) == "enp65s0v0" &&
			value(d[v2].Attributes["devinfo-cni.io/ifName"]) == "enp65s0v1" && d[pf41].Taints == nil && value(d[pf41].Attributes["devinfo-cni.io/speed"]) == "1000"
	}
	n.eventually("the machine's devices are offered", patient, func() bool { d, _ := n.offered(); return complete(d) })

	n.follows("sriov_numvfs 0", pf41, func() { write(t, toPF41+"sriov_numvfs", "0") }, func(d map[string]resourceapi.Device) bool {
		return d[vf41].Name == "" && d[v2].Name == "" && d[pf41].Name != ""
	})
	n.follows("sriov_numvfs 2", pf41, func() { write(t, toPF41+"sriov_numvfs", "2") }, func(d map[string]resourceapi.Device) bool {
		return names(d) == machineDevices
	})
	n.follows("interfaces renamed", pf41, func() {
		for vf, name := range map[string]string{"0000:41:10.0": "enp65s0v0", "0000:41:10.2": "enp65s0v1"} {
			run(t, "ip", "link", "set", interfaceOf(t, vf), "name", name)
		}
	}, complete)
	n.follows("carrier lost", pf41, func() { monitor(t, "set_link net1 off") }, func(d map[string]resourceapi.Device) bool {
		for _, name := range []string{pf41, vf41, v2} {
			if len(d[name].Taints) != 1 || d[name].Taints[0].Key != "devinfo-cni.io/no-carrier" || d[name].Taints[0].Effect != "NoSchedule" {
				return false
			}
		}
		return true
	})
	n.follows("carrier back", pf41, func() { monitor(t, "set_link net1 on") }, complete)
	n.follows("card removed", "", func() { write(t, toPF41+"remove", "1") }, func(d map[string]resourceapi.Device) bool {
		return names(d) == strings.Split(machineDevices, " "+pf41)[0]+" vdpa-vpvdpa0"
	})
	n.follows("card back", "", func() { cardBack(t) }, complete)
}

// cardBack brings the second igb card to what guest-init has made of it.
func cardBack(t *testing.T) {
	t.Helper()
	monitor(t, "set_link net1 on")
	write(t, "/sys/bus/pci/rescan", "1")
	if name := interfaceOf(t, "0000:41:00.0"); name != "enp65s0" {
		run(t, "ip", "link", "set", name, "name", "enp65s0")
	}
	run(t, "ip", "link", "set", "enp65s0", "up")
	if read(t, toPF41+"sriov_numvfs") != "2" || interfaceOf(t, "0000:41:10.0") != "enp65s0v0" || interfaceOf(t, "0000:41:10.2") != "enp65s0v1" {
		vfsBack(t)
	}
}

// interfaceOf waits for the interface of a function, which is on the host.
func interfaceOf(t *testing.T, address string) (name string) {
	t.Helper()
	eventually(t, address+" has an interface", func() bool {
		nets, _ := filepath.Glob("/sys/bus/pci/devices/" + address + "/net/*")
		more, _ := filepath.Glob("/sys/bus/pci/devices/" + address + "/virtio*/net/*")
		nets = append(nets, more...)
		if len(nets) > 0 {
			name = filepath.Base(nets[0])
		}
		return len(nets) == 1
	})
	return name
}

// monitor has QEMU do something to the machine.
func monitor(t *testing.T, command string) {
	t.Helper()
	ports, _ := filepath.Glob("/sys/class/virtio-ports/*/name")
	for _, port := range ports {
		if read(t, port) == "monitor" {
			write(t, "/dev/"+filepath.Base(filepath.Dir(port)), command+"\n")
			return
		}
	}
	t.Fatal("the machine has no port to the monitor")
}

func pause() { time.Sleep(500 * time.Millisecond) }
