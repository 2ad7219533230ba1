package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/link/linktest"
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
			why := first(vf(), u.virtualMachine, u.managed)
			if test.want == "" && why != "" || !strings.Contains(why, test.want) {
				t.Errorf("%q, want %q", why, test.want)
			}
		})
	}
}

func TestFunctionsThatSomebodyHasAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		u     *uses
		given bool
		want  string
	}{
		"free":             {&uses{leased: []string{sysfs.ID("pci", "0000:3b:00.3")}, pods: map[string]string{"0000:3b:00.3": "x"}, stacks: map[int][]stack.Upper{8: {{}}}}, false, ""},
		"lease":            {&uses{leased: []string{sysfs.ID("pci", "0000:3b:00.2")}}, true, "devinfo has a lease of it"},
		"lease of a vDPA":  {&uses{leased: []string{sysfs.ID("vdpa", "vdpa0")}}, true, "devinfo has a lease of it"},
		"pod":              {&uses{pods: had(podresources.Answer{Given: []podresources.Given{{Pod: "shop/p", Device: "0000:3b:00.2"}}})}, true, "pod shop/p has it"},
		"claim":            {&uses{pods: had(podresources.Answer{Claimed: []podresources.Claimed{{Pod: "shop/p", PCI: []string{"0000:3b:00.3", "0000:3b:00.2"}}}})}, true, "by a claim"},
		"interface on top": {&uses{stacks: map[int][]stack.Upper{7: {{}}}}, false, "is on eth0v2"},
	} {
		u, of := test.u, vf()
		of.vdpa, u.host.Links = []string{"vdpa0"}, []listing.Interface{{Name: "eth0v2", Index: 7}}
		given := first(of, u.held)
		if why := first(of, u.held, u.onTop); (given != "") != test.given || test.want == "" && why != "" || !strings.Contains(why, test.want) {
			t.Errorf("%s: %q, given %q; want %q", name, why, given, test.want)
		}
	}
}

// Whatever device node of a function is open, it is in use. Everybody has 1:3 open, which is /dev/null.
func TestOpenDeviceNodesAreSeen(t *testing.T) {
	const dir = "devices/pci0000:00/0000:3b:00.2/"
	for name, want := range map[string]string{
		dir + "infiniband_verbs/uverbs0/dev": "open", dir + "infiniband_mad/umad0/dev": "open", dir + "vfio-dev/vfio0/dev": "open",
		dir + "uio/uio0/dev": "open", dir + "vdpa0/vhost-vdpa-0/dev": "open", dir + "pds_core.vDPA.1/vhost-vdpa-0/dev": "open",
		"class/vfio/noiommu-7/dev": "open", "class/vfio/7/dev": "", "devices/pci0000:00/0000:3b:00.3/uio/uio0/dev": "",
	} {
		tree := fstest.MapFS{
			"bus/pci/devices/0000:3b:00.2":   {Mode: fs.ModeSymlink, Data: []byte("../../../" + dir)},
			dir + "class":                    {Data: []byte("0x020000\n")},
			dir + "driver":                   {Mode: fs.ModeSymlink, Data: []byte("../../../bus/pci/drivers/vfio-pci")},
			dir + "iommu_group":              {Mode: fs.ModeSymlink, Data: []byte("../../../kernel/iommu_groups/7")},
			"kernel/iommu_groups/7/name":     {Data: []byte("vfio-noiommu\n")},
			"class/vfio/noiommu-7/dev":       {Data: []byte("250:7\n")},
			dir + "infiniband_mad/umad9/dev": {Data: []byte("250:8\n")},
		}
		tree[name] = &fstest.MapFile{Data: []byte("1:3\n")}
		u, of := &uses{node: &node{sys: sysfs.New(tree)}}, vf()
		fn, ok, err := u.node.sys.PCI(of.Function.Address)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		of.Function = &fn
		if why, err := u.open(of); err != nil || want == "" && why != "" || !strings.Contains(why, want) {
			t.Errorf("%s: %q, %v; want %q", name, why, err, want)
		}
	}
}

func TestKubeletElsewhereIsNoAnswer(t *testing.T) {
	for command, want := range map[string]bool{"kubelet\n": true, "kubelite\n": true, "containerd\n": false, "k3s-server\n": true, "k3s-agent\n": true} {
		proc := t.TempDir()
		difftest.Must(t, os.Mkdir(proc+"/17", 0o755))
		difftest.Write(t, proc+"/17/comm", command, 0o644)
		if err := noKubelet(proc, "/x"); (err != nil) != want {
			t.Errorf("%q: %v", command, err)
		}
	}
}

// A VF of bnxt_en has the same ID on each card.
func TestPFNamesTheCard(t *testing.T) {
	file := capturetest.Load(t, "mlx5-legacy")
	links, err := linkhost.New(file)
	difftest.Must(t, err)
	sys := sysfs.New(file.Sys())
	devices, _, err := hostdev.Read(hostdev.Host{Sys: sys, Links: links.Links, Eswitches: links})
	difftest.Must(t, err)
	for _, d := range devices {
		if d.Kind == hostdev.VF {
			got, err := product(sys, d)
			difftest.Must(t, err)
			of, err := product(sys, d.Parent)
			difftest.Must(t, err)
			difftest.Same(t, d.PCI, got, of)
		}
	}
}

// A function that the run was not trying may have a user since, and one that is gone cannot come back.
func TestOnlyWhatTheRunWasTryingIsRestored(t *testing.T) {
	sys := sysfs.New(fstest.MapFS{})
	n := &node{dir: t.TempDir(), bootID: "1", sys: sys, custody: restore.New(sys, nil, nil)}
	before := restore.Snapshot{Bus: "pci", Device: "0000:3b:00.2", Inode: 1}
	n.run = &record{BootID: "1", Functions: []function{{Ref: vf().Ref, Before: before}}}
	for _, test := range []struct {
		trying    []string
		different bool
	}{{nil, false}, {[]string{"0000:3b:00.3"}, false}, {[]string{"0000:3b:00.2"}, true}} {
		difftest.Must(t, n.note(test.trying))
		different, err := n.undo(t.Context(), io.Discard)
		difftest.Must(t, err)
		difftest.Equal(t, different, test.different)
		if _, err := n.readRecord(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: the record is still there: %v", test.trying, err)
		}
	}
}

// A thread that stays in a namespace keeps the NIC in it. The main thread never ends.
func TestNoThreadStaysInPod(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		own, err := os.Readlink("/proc/self/ns/net")
		difftest.Must(t, err)
		for range 100 {
			_, err := newPod("left")
			difftest.Must(t, err)
			removePods()
			threads, _ := filepath.Glob("/proc/self/task/*/ns/net")
			for _, thread := range threads {
				if in, err := os.Readlink(thread); err == nil && in != own {
					t.Fatalf("%s is %s, not %s", thread, in, own)
				}
			}
		}
	})
}

// In a pod the kernel would send router solicitations, which nobody was told of.
func TestPodsAreSilent(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		const text = "/proc/sys/net/ipv6/conf/peer0/disable_ipv6"
		difftest.Must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "veth0"}, PeerName: "peer0"}))
		if _, err := os.Stat(text); errors.Is(err, fs.ErrNotExist) {
			t.Skip("this kernel has no IPv6")
		}
		pod, err := newPod("silent")
		difftest.Must(t, err)
		t.Cleanup(removePods)
		l, err := netlink.LinkByName("peer0")
		difftest.Must(t, err)
		difftest.Must(t, moveTo(l, pod))
		difftest.Must(t, link.Within(pod, func() error {
			difftest.Same(t, text, difftest.Read(t, text), "1\n")
			return nil
		}))
	})
}

// Each field of a function counts, so that nothing can be lost unseen.
func TestEachDifferenceIsTold(t *testing.T) {
	before := state{Driver: "mlx5_core", IfName: "eth0v2", MAC: "02:00:00:00:00:01", MTU: 1500, RDMA: []string{"mlx5_2"}, VDPA: []string{"vdpa0"}, Auxilary: []string{"mlx5_core.eth.2"}}
	difftest.Same(t, "unchanged", strings.Join(before.unlike(before), "; "), "")
	rebound := before // the kernel numbers these anew
	rebound.RDMA, rebound.Auxilary = []string{"mlx5_9"}, []string{"mlx5_core.eth.7"}
	difftest.Same(t, "bound again", strings.Join(before.unlike(rebound), "; "), "")
	for want, change := range map[string]func(*state){
		"driver: mlx5_core before, now vfio-pci":                              func(s *state) { s.Driver = "vfio-pci" },
		"driver_override:  before, now vfio-pci":                              func(s *state) { s.Override = "vfio-pci" },
		"interface: eth0v2 before, now net1":                                  func(s *state) { s.IfName = "net1" },
		"MAC: 02:00:00:00:00:01 before, now 02:00:00:00:00:02":                func(s *state) { s.MAC = "02:00:00:00:00:02" },
		"MTU: 1500 before, now 1400":                                          func(s *state) { s.MTU = 1400 },
		"up: false before, now true":                                          func(s *state) { s.Up = true },
		"RDMA devices: [mlx5_2] before, now []":                               func(s *state) { s.RDMA = nil },
		"vDPA devices: [vdpa0] before, now [vdpa1]":                           func(s *state) { s.VDPA = []string{"vdpa1"} },
		"auxiliary devices: [mlx5_core.eth.2] before, now []":                 func(s *state) { s.Auxilary = nil },
		"auxiliary devices: [mlx5_core.eth.2] before, now [mlx5_core.rdma.2]": func(s *state) { s.Auxilary = []string{"mlx5_core.rdma.2"} },
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
