//go:build vm

package vm_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// draRules offer all VFs of the machine, its vDPA device on one, and a PF.
const draRules = `devices:
- select: device.attributes["devinfo-cni.io"].kind == "vdpa" && device.attributes["devinfo-cni.io"].vdpaDriver == "vhost"
  as: exclusive
  resourceName: example.com/vdpa
- drivers: [vfio-pci]
  as: exclusive
  resourceName: example.com/dpdk
- pfNames: [enp1s0, enp65s0, enp2s0]
  as: exclusive
  attributes: {physicalNetwork: blue}
- ifNames: [enp65s0]
  as: shared
  attachments: 7
  bandwidth: 1G
`

// offered are the node's own devices in its slices, by name, and the slice of each.
func (n *draNode) offered() (map[string]resourceapi.Device, map[string]string) {
	n.t.Helper()
	list, err := n.ResourceV1().ResourceSlices().List(n.t.Context(), metav1.ListOptions{})
	must(n.t, err)
	devices, in := map[string]resourceapi.Device{}, map[string]string{}
	for _, s := range list.Items {
		for _, d := range s.Spec.Devices {
			if d.Name != "cni" {
				devices[d.Name], in[d.Name] = d, s.Name
			}
		}
	}
	return devices, in
}

// published waits until the device is.
func (n *draNode) published(name string) (d resourceapi.Device) {
	n.t.Helper()
	n.eventually(name+" is published", patient, func() (there bool) {
		all, _ := n.offered()
		d, there = all[name]
		return there
	})
	return d
}

// text is a device for people, a line for each attribute.
func text(d resourceapi.Device) string {
	var b strings.Builder
	fmt.Fprintln(&b, d.Name)
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		fmt.Fprintf(&b, "  %s: %s\n", strings.TrimPrefix(string(name), "devinfo-cni.io/"), value(d.Attributes[name]))
	}
	if d.AllowMultipleAllocations != nil {
		fmt.Fprintln(&b, "  shared:", *d.AllowMultipleAllocations)
	}
	for _, name := range slices.Sorted(maps.Keys(d.Capacity)) {
		capacity := d.Capacity[name]
		fmt.Fprintf(&b, "  capacity %s: %v, %v if nothing is said\n", name, &capacity.Value, capacity.RequestPolicy.Default)
	}
	for _, taint := range d.Taints {
		fmt.Fprintf(&b, "  taint %s: %s\n", taint.Key, taint.Effect)
	}
	return b.String()
}

func value(a resourceapi.DeviceAttribute) string {
	switch {
	case a.StringValue != nil:
		return *a.StringValue
	case a.IntValue != nil:
		return fmt.Sprint(*a.IntValue)
	case a.BoolValue != nil:
		return fmt.Sprint(*a.BoolValue)
	}
	return "?"
}

// machineDevices are those that draRules offer, as guest-init makes them.
const machineDevices = `pci-0000-01-10-0 pci-0000-01-10-2 pci-0000-01-10-4 pci-0000-01-10-6 pci-0000-02-00-2 pci-0000-41-00-0 pci-0000-41-10-0 pci-0000-41-10-2 vdpa-vpvdpa0`

func names(devices map[string]resourceapi.Device) string {
	return strings.Join(slices.Sorted(maps.Keys(devices)), " ")
}

const (
	patient = 3 * time.Minute  // for what takes as long as it takes
	longest = 50 * time.Second // for slices to follow events: less than the agent's poll behind them
)

// eventually waits for what agent and kernel do in the background.
func (n *draNode) eventually(what string, limit time.Duration, holds func() bool) {
	n.t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			n.t.Fatalf("%v later still not: %s\n%s", limit, what, n.texts())
		}
	}
}

// texts are the devices that are offered, for people.
func (n *draNode) texts() string {
	devices, _ := n.offered()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		b.WriteString(text(devices[name]))
	}
	return b.String()
}

func TestDRAVDPAByClaim(t *testing.T) {
	needs(t, "vpvdpa")
	n := newDRANode(t, draRules)
	path := node(t, "vpvdpa0")
	info := vdpaVFInfo("vpvdpa0", "vhost", path, "0000:02:00.1", "0000:02:00.0")

	p := n.podWith("vdpa", "vdpa-vpvdpa0", draNetwork(devinfoLast))
	p.begin()
	p.described(p.container(), info, path, "")
	p.end()
}

// A VF that is on vfio-pci beforehand stays so. The first DEL of sriov fails for it, and the
// next one succeeds.
func TestDRAVFOnVFIOByClaim(t *testing.T) {
	needs(t, "igb")
	n := newDRANode(t, draRules)
	for _, test := range []struct{ name, parameters string }{
		{"sriov", draNetwork(`{"type": "sriov"}, ` + devinfoLast)},
		{"host-device", draNetwork(`{"type": "host-device"}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			was := stateOf(t, "0000:01:10.6")
			p := n.in(t).podWith("vfio-"+test.name, "pci-0000-01-10-6", test.parameters)
			p.begin()
			p.described(p.container(), pciInfo("0000:01:10.6", "0000:01:00.0"), "/dev/vfio/vfio "+group(t, "0000:01:10.6"), "")
			p.end()
			backAs(t, "0000:01:10.6", was)
		})
	}
}

// With driver: vfio-pci the agent binds the VF to it for the pod, and gives it back to its
// network driver with the name, MAC and MTU that its interface had. DPDK sends back what
// comes from the PF.
func TestDRAVFIsBoundToVFIOForItsPod(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	hugepages(t)
	n := newDRANode(t, draRules)
	const podsMAC = "02:00:00:00:00:77"
	for _, test := range []struct{ name, plugins string }{
		{"sriov", `{"type": "sriov", "mac": "` + podsMAC + `"}`}, {"devinfo", devinfoLast},
	} {
		t.Run(test.name, func(t *testing.T) {
			const address = "0000:41:10.0"
			was := stateOf(t, address)
			p := n.in(t).podWith("bound-"+test.name, vf41, `"driver": "vfio-pci", `+draNetwork(test.plugins))
			p.prepare()
			same(t, "driver after Prepare", stateOf(t, address).Driver, "igbvf")
			p.up()
			same(t, "driver in the pod", stateOf(t, address).Driver, "vfio-pci")
			made := p.container()
			p.described(made, pciInfo(address, "0000:41:00.0"), "/dev/vfio/vfio "+group(t, address), "vfio-pci")
			if test.name == "sriov" {
				dpdk := madeOf(p.sandbox.Id, made).start(t, append(shown(t, "A VF on vfio-pci"), swaps...)...)
				answers(t, "enp65s0", podsMAC)
				dpdk.end()
			}
			n.restart() // its record knows what to give back
			p.end()
			backAs(t, address, was)
		})
	}
}
