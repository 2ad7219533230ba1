package link_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

var must, equal = difftest.Must, difftest.Equal

func kernel() *link.Kernel { return link.NewKernel(os.DirFS("/sys")) }

// read returns an interface without the fields that differ from run to run.
func read(t *testing.T, netns, name string) link.Interface {
	t.Helper()
	i, err := kernel().Interface(netns, name)
	must(t, err)
	for l := &i; l != nil; l = l.Lower {
		if l.Index <= 0 || len(l.MAC) != 6 || l.MTU < 1500 {
			t.Errorf("%s: index %d, MAC %q, MTU %d", l.Name, l.Index, l.MAC, l.MTU)
		}
		l.Index, l.MAC, l.MTU = 0, nil, 0
	}
	return i
}

func TestInterfacesOfNamespace(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		linktest.AddVeth(t, "veth0", "eth0", pod)
		linktest.AddMacvlan(t, "veth0", "net0", pod)
		must(t, linktest.InNetns(pod, func() error {
			return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}})
		}))
		equal(t, read(t, pod, "eth0"), link.Interface{Name: "eth0", Kind: "veth"})
		equal(t, read(t, "", "veth0"), link.Interface{Name: "veth0", Kind: "veth"})
		veth, err := kernel().Interface("", "veth0")
		must(t, err)
		names, err := kernel().WithMAC(veth.MAC)
		must(t, err)
		equal(t, names, []string{"veth0"})
		equal(t, read(t, pod, "lo"), link.Interface{Name: "lo"})
		// BusInfo comes from ethtool, which must read in the pod's network namespace.
		equal(t, read(t, pod, "br0"), link.Interface{Name: "br0", Kind: "bridge", BusInfo: "N/A"})
		for _, netns := range []string{"", pod} {
			for _, name := range []string{"net1", "", "sixteen-too-long", "a/b", strings.Repeat("x", 127), strings.Repeat("x", 128)} {
				_, err := kernel().Interface(netns, name)
				if !errors.Is(err, link.ErrNoInterface) || !strings.Contains(err.Error(), `"`+name+`"`) || !strings.Contains(err.Error(), netns) {
					t.Errorf("%q in %q: %v", name, netns, err)
				}
			}
		}
		linktest.EachOpenFailure(t, map[string]func() error{
			"Interface":   func() error { _, err := kernel().Interface(pod, "net0"); return err },
			"WithMAC":     func() error { _, err := kernel().WithMAC(veth.MAC); return err },
			"VDPAMAC":     func() error { _, _, err := kernel().VDPAMAC("vdpa0"); return err },
			"EswitchMode": func() error { _, err := link.Handle{Bus: "pci", Device: pf}.EswitchMode(); return err },
			"Ports":       func() error { _, err := link.Handle{Bus: "pci", Device: pf}.Ports(); return err },
			"SeesMounts":  func() error { _, err := link.SeesMounts(pod); return err },
		})
	})
}

func TestInterfaceIsFoundAfterRename(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		linktest.AddVeth(t, "veth0", "eth0", pod)
		nic, err := netlink.LinkByName("veth0")
		must(t, err)
		must(t, errors.Join(netlink.LinkSetDown(nic), netlink.LinkSetName(nic, "renamed"), netlink.LinkAddAltName(nic, "second"), netlink.LinkAddAltName(nic, "a-second-long-name")))
		for _, name := range []string{"renamed", "second", "a-second-long-name"} {
			equal(t, read(t, "", name), link.Interface{Name: "renamed", Kind: "veth"})
		}
		_, err = kernel().Interface("", "veth0")
		difftest.Is(t, err, link.ErrNoInterface)
	})
}

// The kernel of this machine may lack devlink and vDPA.
func TestMissingKernelFeaturesAreNotErrors(t *testing.T) {
	k := link.NewKernel(fstest.MapFS{})
	if mac, ok, err := k.VDPAMAC("nosuch"); ok || err != nil {
		t.Errorf("VDPAMAC: %v, %v, %v", mac, ok, err)
	}
	if on, err := k.Switchdev("ffff:ff:1f.7"); on || err != nil {
		t.Errorf("Switchdev: %v, %v", on, err)
	}
	for _, f := range []link.Flavour{link.VF, link.SF} {
		if name, _, err := k.Representor("ffff:ff:1f.7", f, 0); name != "" || err != nil {
			t.Errorf("Representor: %q, %v", name, err)
		}
	}
}
