package link_test

import (
	"net"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linktest"
)

func TestAnInterfaceIsChangedAsItIsSaid(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		linktest.AddVeth(t, "net1", "peer", linktest.NewNetns(t)) // which is up
		k := link.NewKernel(os.DirFS("/sys"))
		mac, _ := net.ParseMAC("02:00:00:00:00:07")
		must(t, k.Change("net1", link.Change{Name: "nic", MTU: 1400, MAC: mac}))
		got, err := k.Interface("", "nic")
		if err != nil || got.MTU != 1400 || got.MAC.String() != mac.String() {
			t.Errorf("got %+v, %v", got, err)
		}
		l, err := netlink.LinkByName("nic")
		if err != nil || l.Attrs().Flags&net.FlagUp == 0 {
			t.Errorf("it stays up: %+v, %v", l, err)
		}
		if err := k.Change("nic", link.Change{}); err != nil {
			t.Error(err)
		}
		if err := k.Change("net1", link.Change{MTU: 1500}); err == nil {
			t.Error("there is no net1 any more")
		}
		if err := k.Change("nic", link.Change{Name: "lo"}); err == nil {
			t.Error("lo is taken")
		}
		if _, ok, err := k.VF("nic", 0); ok || err != nil {
			t.Errorf("it has no VFs: %v, %v", ok, err)
		}
		if _, ok, err := k.VF("none", 0); ok || err != nil {
			t.Errorf("it is not there: %v, %v", ok, err)
		}
	})
}
