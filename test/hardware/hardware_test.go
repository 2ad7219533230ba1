package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/stack"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// vf is a VF of eth0, with the interface eth0v2.
func vf() *target {
	fn := &sysfs.Function{Address: pci.Address{Bus: 0x3b, Function: 2}}
	pf := &hostdev.Device{Ref: hostdev.Ref{Kind: hostdev.PF, PCI: "0000:3b:00.0", IfName: "eth0"}}
	return &target{Device: &hostdev.Device{Ref: hostdev.Ref{Kind: hostdev.VF, PCI: "0000:3b:00.2", IfName: "eth0v2"}, Parent: pf, Function: fn}}
}

func TestFunctionsOfVirtualMachinesAndManagersAreRefused(t *testing.T) {
	for _, test := range []struct{ name, file, text, want string }{
		{"hostdev of a machine", "etc/libvirt/qemu/vm.xml", `<address domain='0x0000' bus='0x3b' slot='0x00' function='0x2'/>`, "libvirt names it"},
		{"hostdev of a running machine", "run/libvirt/qemu/vm.xml", `<address domain="0x0000" bus="0x3b" slot="0x00" function="0x2"/>`, "libvirt names it"},
		{"another function", "etc/libvirt/qemu/vm.xml", `<address domain='0x0000' bus='0x3b' slot='0x00' function='0x3'/>`, ""},
		{"macvtap of a machine", "etc/libvirt/qemu/vm.xml", `<source dev='eth0v2' mode='bridge'/>`, "libvirt names it"},
		{"pool of the PF", "etc/libvirt/qemu/networks/pool.xml", `<pf dev='eth0'/>`, "libvirt names it"},
		{"another interface", "etc/libvirt/qemu/networks/pool.xml", `<pf dev='eth01'/>`, ""},
		{"connection of NetworkManager", "run/NetworkManager/devices/7", "[device]\nmanaged=true\nconnection-uuid=0a1b\n", "NetworkManager configures eth0v2"},
		{"unmanaged", "run/NetworkManager/devices/7", "[device]\nmanaged=false\n", ""},
		{"another interface's", "run/NetworkManager/devices/8", "connection-uuid=0a1b\n", ""},
		{"file of networkd", "run/systemd/netif/links/7", "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/10-vf.network\n", "systemd-networkd configures eth0v2"},
		{"directory in place of the file", "run/systemd/netif/links/7/x", "", "cannot tell"},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := &uses{root: t.TempDir(), host: inventory.Host{Host: hostdev.Host{Links: []listing.Interface{{Name: "eth0v2", Index: 7}}}}}
			difftest.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(u.root, test.file)), 0o755))
			difftest.Write(t, filepath.Join(u.root, test.file), test.text, 0o644)
			why, err := u.virtualMachine(vf())
			if why == "" && err == nil {
				why, err = u.managed(vf())
			}
			if err != nil {
				why = "cannot tell: " + err.Error()
			}
			if test.want == "" && why != "" || !strings.Contains(why, test.want) {
				t.Errorf("%q, want %q", why, test.want)
			}
		})
	}
}

func TestFunctionsThatSomebodyHasAreRefused(t *testing.T) {
	free := func(u *uses) *uses {
		u.host.Links = []listing.Interface{{Name: "eth0v2", Index: 7}}
		return u
	}
	for name, test := range map[string]struct {
		u     *uses
		given bool
		want  string
	}{
		"free":             {&uses{leased: []string{sysfs.ID("pci", "0000:3b:00.3")}, pods: map[string]string{"0000:3b:00.3": "x"}, stacks: map[int][]stack.Upper{8: {{}}}}, false, ""},
		"lease":            {&uses{leased: []string{sysfs.ID("pci", "0000:3b:00.2")}}, true, "devinfo has a lease of it"},
		"lease of a vDPA":  {&uses{leased: []string{sysfs.ID("vdpa", "vdpa0")}}, true, "devinfo has a lease of it"},
		"pod":              {&uses{pods: map[string]string{"0000:3b:00.2": "pod shop/p has it"}}, true, "pod shop/p has it"},
		"interface on top": {&uses{stacks: map[int][]stack.Upper{7: {{}}}}, false, "is on eth0v2"},
	} {
		u, of := free(test.u), vf()
		of.vdpa = []string{"vdpa0"}
		given := first(of, u.held)
		if why := first(of, u.held, u.onTop); (given != "") != test.given || test.want == "" && why != "" || !strings.Contains(why, test.want) {
			t.Errorf("%s: %q, given %q; want %q", name, why, given, test.want)
		}
	}
}

// Each field of a function counts, so that nothing can be lost unseen.
func TestEachDifferenceIsTold(t *testing.T) {
	before := state{Driver: "mlx5_core", IfName: "eth0v2", MAC: "02:00:00:00:00:01", MTU: 1500, RDMA: []string{"mlx5_2"}, VDPA: []string{"vdpa0"}, Auxilary: []string{"mlx5_core.eth.2"}}
	difftest.Same(t, "unchanged", strings.Join(before.unlike(before), "; "), "")
	for want, change := range map[string]func(*state){
		"driver: mlx5_core before, now vfio-pci":               func(s *state) { s.Driver = "vfio-pci" },
		"driver_override:  before, now vfio-pci":               func(s *state) { s.Override = "vfio-pci" },
		"interface: eth0v2 before, now net1":                   func(s *state) { s.IfName = "net1" },
		"MAC: 02:00:00:00:00:01 before, now 02:00:00:00:00:02": func(s *state) { s.MAC = "02:00:00:00:00:02" },
		"MTU: 1500 before, now 1400":                           func(s *state) { s.MTU = 1400 },
		"up: false before, now true":                           func(s *state) { s.Up = true },
		"RDMA devices: [mlx5_2] before, now []":                func(s *state) { s.RDMA = nil },
		"vDPA devices: [vdpa0] before, now [vdpa1]":            func(s *state) { s.VDPA = []string{"vdpa1"} },
		"auxiliary devices: [mlx5_core.eth.2] before, now []":  func(s *state) { s.Auxilary = nil },
	} {
		now := before
		change(&now)
		difftest.Same(t, want, strings.Join(before.unlike(now), "; "), want)
		if free := strings.HasPrefix(want, "MAC") || strings.HasPrefix(want, "up"); (before.unlikeAfterBoot(now) == nil) != free {
			t.Errorf("after a boot: %q, want a difference %v", before.unlikeAfterBoot(now), !free)
		}
	}
}

// A reset may lose what hangs on the function.
func TestLostDevicesAreSeen(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"infiniband/mlx5_2", "vdpa0", "mlx5_core.eth.2"} {
		difftest.Must(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	difftest.Must(t, os.Symlink("../../drivers/mlx5_core", dir+"/driver"))
	before, err := readState(dir)
	difftest.Must(t, err)
	for _, lost := range []struct{ name, want string }{
		{"infiniband/mlx5_2", "RDMA devices: [mlx5_2] before, now []"},
		{"vdpa0", "vDPA devices: [vdpa0] before, now []"},
		{"mlx5_core.eth.2", "auxiliary devices: [mlx5_core.eth.2] before, now []"},
		{"driver", "driver: mlx5_core before, now ."},
	} {
		difftest.Must(t, os.Rename(filepath.Join(dir, lost.name), dir+"/away"))
		now, err := readState(dir)
		difftest.Must(t, err)
		difftest.Same(t, lost.name, strings.Join(before.unlike(now), "; "), lost.want)
		difftest.Must(t, os.Rename(dir+"/away", filepath.Join(dir, lost.name)))
	}
}

func TestChecksApplyToWhatTheyNeed(t *testing.T) {
	applies := func(t *target) (names []string) {
		for _, c := range checks {
			if err := c.needs(t); err == nil {
				names = append(names, c.name)
			} else if _, is := errors.AsType[notApplicable](err); !is {
				names = append(names, err.Error())
			}
		}
		return names
	}
	whole, onVFIO, carrier := vf(), vf(), vf()
	whole.Device = whole.Parent
	onVFIO.IfName, onVFIO.Driver = "", "vfio-pci"
	carrier.vdpa = []string{"vdpa0"}
	for _, test := range []struct {
		name string
		t    *target
		want int
	}{{"VF", vf(), 9}, {"whole function", whole, 7}, {"VF on vfio-pci", onVFIO, 2}, {"VF with a vDPA device", carrier, 1}} {
		if got := applies(test.t); len(got) != test.want {
			t.Errorf("%s: %d checks apply, want %d: %q", test.name, len(got), test.want, got)
		}
	}
}

func TestPairsAreOfOnePF(t *testing.T) {
	a, b, other := vf(), vf(), vf()
	b.Parent, other.Parent = a.Parent, &hostdev.Device{Ref: hostdev.Ref{PCI: "0000:5e:00.0"}}
	if got := pairs([]*target{a, other, b}); len(got) != 1 || got[0] != [2]*target{a, b} {
		t.Errorf("%d pairs", len(got))
	}
}

func TestOnlyYesAgrees(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, "\n": false, "": false, "n\n": false, "yeah\n": false} {
		difftest.Equal(t, agrees(strings.NewReader(answer), &strings.Builder{}), want)
	}
}
