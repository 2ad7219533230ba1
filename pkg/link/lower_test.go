package link_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linktest"
	"github.com/vishvananda/netlink"
)

// The lower interface may be in our own namespace, in the pod's, or in a third one.
func TestLowerInAnyNamespace(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		here, pod, third := "/proc/thread-self/ns/net", linktest.NewNetns(t), linktest.NewNetns(t)
		for n, of := range []string{here, pod, third} {
			name, nic := fmt.Sprint("net", n), fmt.Sprint("nic", n)
			linktest.AddVeth(t, fmt.Sprint("peer", n), nic, of)
			err := linktest.InNetns(of, func() error {
				linktest.AddMacvlan(t, nic, name, pod)
				return nil
			})
			must(t, err)
			want := link.Interface{Name: name, Kind: "macvlan", Lower: &link.Interface{Name: nic, Kind: "veth"}}
			equal(t, ask(t, pod, name), want)
			if of == pod { // also for who is in it
				must(t, linktest.InNetns(pod, func() error {
					equal(t, ask(t, "", name), want)
					return nil
				}))
			}
		}
	})
}

// The index of an interface says nothing in another namespace: here a bystander
// in the pod has the lower one's.
func TestLowerIsNotTakenForItsNamesakes(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod, other := linktest.NewNetns(t), linktest.NewNetns(t)
		nic := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
		nic.Name, nic.Index = "nic", 77
		must(t, netlink.LinkAdd(nic))
		must(t, linktest.InNetns(pod, func() error {
			bystander := &netlink.Bridge{LinkAttrs: netlink.NewLinkAttrs()}
			bystander.Name, bystander.Index = "bystander", 77
			return netlink.LinkAdd(bystander)
		}))
		linktest.AddMacvlan(t, "nic", "net1", pod)
		linktest.AddMacvlan(t, "nic", "net2", other)
		want := link.Interface{Name: "net1", Kind: "macvlan", Lower: &link.Interface{Name: "nic", Kind: "bridge", BusInfo: "N/A"}}
		equal(t, ask(t, pod, "net1"), want)
		want.Name = "net2"
		equal(t, ask(t, other, "net2"), want)
	})
}

func TestLowerThroughAStack(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod, other := linktest.NewNetns(t), linktest.NewNetns(t)
		linktest.AddVeth(t, "nic", "peer", other)
		nic, err := netlink.LinkByName("nic")
		must(t, err)
		vlan := &netlink.Vlan{LinkAttrs: netlink.NewLinkAttrs(), VlanId: 7}
		vlan.Name, vlan.ParentIndex = "nic.7", nic.Attrs().Index
		if err := netlink.LinkAdd(vlan); err != nil {
			if errors.Is(err, syscall.EOPNOTSUPP) {
				t.Skip("the kernel has no vlan")
			}
			t.Fatal(err)
		}
		linktest.AddMacvlan(t, "nic.7", "net1", pod)
		equal(t, ask(t, pod, "net1"), link.Interface{
			Name: "net1", Kind: "macvlan", Lower: &link.Interface{
				Name: "nic.7", Kind: "vlan", Lower: &link.Interface{
					Name: "nic", Kind: "veth"}}})
	})
}
