package inventory_test

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestDeviceIsNotOfferedWhileRelatedDeviceIsHeld(t *testing.T) {
	goldentest.Lines(t, "testdata/related.txt", func(line string) (offers []string) {
		part := strings.Split(words.Replace(line), " | ")
		changes, further := strings.CutSuffix(part[1], ", further port")
		devices, s := read(t, changed(t, changes)), input()
		if further {
			devices = append(devices, inventory.Device{Name: "net-eth9", Ref: hostdev.Ref{Kind: hostdev.NIC, IfName: "eth9", PortOf: "0000:41:00.0"}})
		}
		for n := range devices {
			if devices[n].Name == mlxVF {
				devices[n].IfName = "enp101s0f0v2" // VFs of mlx5 have an interface beside their vDPA device
			}
		}
		s.Ours, s.Others = inventory.Published{}, map[string]string{}
		for _, held := range strings.Split(part[3], ", ") {
			switch holder, device, _ := strings.Cut(held, " "); holder {
			case "claim", "pods":
				s.Ours[device] = resourceapi.Device{AllowMultipleAllocations: new(holder == "pods")}
			case "other":
				s.Others[device] = "pod ns/x has it"
			}
		}
		decisions := inventory.Decide(devices, rules(t, "devices: ["+part[2]+"]"), s)
		for _, device := range strings.Fields(part[0]) {
			offers = append(offers, device+": "+cmp.Or(decision(decisions, device).Why, "offered"))
		}
		return offers
	})
}

// A device that claims hold keeps its published state, regardless of changes to rules and host, but no further claim
// gets it if it is no longer offered. The rule of an exclusive device depends on the interface that it had.
func TestHeldDeviceIsTaintedWhenNotOffered(t *testing.T) {
	before := offered(t, changed(t, "unchanged"), "devices: [{ifNames: [eth1], sharing: shared}]")
	maps.Copy(before, offered(t, changed(t, "host virtio-vm"), "devices: [{ifNames: [eth0], sharing: exclusive}]"))
	goldentest.Lines(t, "testdata/held.txt", func(line string) []string {
		part := strings.Split(words.Replace(line), " | ")
		device, s := part[0], input()
		s.Ours = inventory.Published{device: before[device]}
		decisions := inventory.Decide(read(t, changed(t, part[1])), rules(t, "devices: ["+part[2]+"]"), s)
		why := decision(decisions, device).Why
		now := inventory.Pool(decisions, s.Ours)[device]
		why = cmp.Or(why, "offered")
		for _, taint := range now.Taints {
			why += "; taint " + taint.Key
		}
		now.Taints = nil
		difftest.Same(t, line+": it does not stay as it was", describe(now), describe(before[device]))
		return []string{why}
	})
}

// The kernel moves an interface back under the name that it had in the pod.
func TestRenamedInterfaceIsSameDevice(t *testing.T) {
	for where, text := range map[string][]byte{"netdevsim-switchdev": capturetest.Text(t, "netdevsim-switchdev"), "two ports": capturetest.Ports("i40e", 2)} {
		before := interfaces(t, text)
		for _, name := range slices.Sorted(maps.Keys(before)) {
			after := interfaces(t, bytes.ReplaceAll(text, []byte(before[name]), []byte("z"+before[name])))
			difftest.Same(t, where+": "+name, after[name], "z"+before[name])
			// While the interface is in a pod, no other interface becomes its device.
			gone := interfaces(t, capturetest.Without(text, before[name]))
			for other, ifName := range before {
				if other != name && gone[other] != ifName {
					t.Errorf("%s: without %s: %s is %q, was %q", where, before[name], other, gone[other], ifName)
				}
			}
		}
	}
}

// interfaces returns the interfaces of a host's devices, by device name.
func interfaces(t *testing.T, text []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, d := range read(t, host(t, text)) {
		if other, taken := all[d.Name]; taken {
			t.Errorf("%s is %s and %s", d.Name, other, d.IfName)
		}
		if d.IfName != "" {
			all[d.Name] = d.IfName
		}
	}
	return all
}
