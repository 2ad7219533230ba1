package restore_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

const (
	vf      = "0000:01:10.0" // eth2, IOMMU group 12, igbvf
	netns   = "/var/run/netns/pod"
	podsMAC = "02:00:00:00:00:99"
)

func kernel(t *testing.T, dir, host string) *restoretest.Kernel {
	t.Helper()
	k, err := restoretest.Make(dir, capturetest.Text(t, host))
	difftest.Must(t, err)
	return k
}

func function(address, ifName string) hostdev.Ref {
	return hostdev.Ref{Kind: hostdev.VF, PCI: address, IfName: ifName}
}

func look(t *testing.T, h *restore.Devices, d hostdev.Ref) restore.Snapshot {
	t.Helper()
	f, err := h.Look(d)
	difftest.Must(t, err)
	return f
}

// igb returns the kernel of the host igb-sriov and the state of its vf.
func igb(t *testing.T) (*restoretest.Kernel, *restore.Devices, restore.Snapshot) {
	t.Helper()
	k := kernel(t, t.TempDir(), "igb-sriov")
	return k, k.Host(), look(t, k.Host(), function(vf, "eth2"))
}

// named returns an interface of the host.
func named(k *restoretest.Kernel, name string) link.Interface {
	i, err := k.Interface("", name)
	if err != nil {
		panic(err)
	}
	return i
}

// untouched are the initial settings of a VF on its PF.
func untouched() *settings.VF {
	return &settings.VF{VLANProto: 0x8100, SpoofCheck: true}
}

func TestLookFindsDeviceByBusAndName(t *testing.T) {
	goldentest.Lines(t, "testdata/devices.txt", func(line string) []string {
		host, text, _ := strings.Cut(line, " ")
		var device hostdev.Ref
		difftest.Must(t, json.Unmarshal([]byte(text), &device))
		got := look(t, kernel(t, t.TempDir(), host).Host(), device)
		if got.Inode == 0 {
			t.Error("a device made anew cannot be told from this one")
		}
		got.Inode = 0
		record, err := json.Marshal(got)
		difftest.Must(t, err)
		return []string{string(record)}
	})
}

// spoilt returns other settings than a new interface has, and their names.
func spoilt() (all settings.Dump, names []string) {
	names = []string{settings.Name, settings.AltNames, "features", "noarp", "xdp", "ethtool-99", "rings"}
	all = settings.Dump{}
	for _, name := range names[2:] {
		all[name] = "07"
	}
	all[settings.AltNames] = "eth2 eth3.100"
	return all, names
}

// A life is a sequence of events for a device between ADD and the end of DEL.
type life struct {
	name    string
	does    func(t *testing.T, k *restoretest.Kernel, f restore.Snapshot)
	did     []string
	reset   restore.ResetMode
	onVFIO  bool   // the device is a function that lives on vfio-pci, not vf
	altName string // altname of the interface before ADD
	changes int    // that it takes at least
}

func lives() []life {
	gone := func(t *testing.T, k *restoretest.Kernel, _ restore.Snapshot) {
		difftest.Must(t, k.Move(vf, "", netns, "net1"), k.Use(vf, 9000, podsMAC), k.EndNetns(netns))
	}
	nothing := func(*testing.T, *restoretest.Kernel, restore.Snapshot) {}
	all, names := spoilt()
	return []life{
		{name: "nothing", does: nothing},
		{name: "its namespace ended", does: gone, did: []string{settings.Name, settings.MTU, settings.MAC}},
		{name: "the pod took names and set all else", does: func(t *testing.T, k *restoretest.Kernel, _ restore.Snapshot) {
			difftest.Must(t, k.Move(vf, "", netns, "net1"), k.Configure(vf, all), k.EndNetns(netns))
		}, did: names},
		{name: "DEL could not move it, because another interface has the altname that the pod gave to it", does: func(t *testing.T, k *restoretest.Kernel, _ restore.Snapshot) {
			difftest.Must(t, k.Move(vf, "", netns, "net1"), k.Configure(vf, settings.Dump{settings.AltNames: "eth3"}))
			difftest.Is(t, k.Move(vf, netns, "", "net1"), syscall.EEXIST)
			difftest.Must(t, k.EndNetns(netns))
		}, did: []string{settings.Name}},
		{name: "a plugin restored the name", does: func(t *testing.T, k *restoretest.Kernel, _ restore.Snapshot) {
			difftest.Must(t, k.Move(vf, "", netns, "net1"), k.Use(vf, 1400, podsMAC), k.Move(vf, netns, "", "eth2"))
		}, did: []string{settings.MTU, settings.MAC}},
		{name: "its PF set MAC, VLAN and trust", does: func(t *testing.T, k *restoretest.Kernel, f restore.Snapshot) {
			difftest.Must(t, k.ConfigureVF(vf, settings.VF{MAC: podsMAC, VLAN: 7, Trust: true, VLANProto: 0x8100, SpoofCheck: true}))
			gone(t, k, f)
		}, did: []string{settings.Name, settings.MTU, settings.MAC, settings.VFMAC, settings.VFVLAN, settings.VFTrust}},
		{name: "its PF set all else", does: func(t *testing.T, k *restoretest.Kernel, f restore.Snapshot) {
			difftest.Must(t, k.ConfigureVF(vf, settings.VF{
				QoS: 3, VLANProto: 0x88a8, LinkState: 1, MinRate: 10, MaxRate: 200, NodeGUID: "00:11:22:33:44:55:66:77", PortGUID: "00:11:22:33:44:55:66:78"}))
		}, did: []string{settings.VFVLAN, settings.VFSpoofCheck, settings.VFLinkState, settings.VFRate, settings.VFGUID}},
		{name: "vfio-pci", does: func(t *testing.T, k *restoretest.Kernel, f restore.Snapshot) {
			h := k.Host()
			difftest.Must(t, h.MayBind(f, "vfio-pci"), h.Bind(f, "vfio-pci"))
			if now := look(t, h, function(vf, "eth2")); now.Driver != "vfio-pci" || now.IfName != "" {
				t.Errorf("bound: %+v", now)
			}
			difftest.Must(t, h.Bind(f, "vfio-pci")) // as after a crash
		}, did: []string{restore.Driver, settings.Name, settings.MAC}},
		{name: "vfio-pci, and its PF kept the pod's MAC", does: func(t *testing.T, k *restoretest.Kernel, f restore.Snapshot) {
			difftest.Must(t, k.Host().Bind(f, "vfio-pci"))
			to := *untouched()
			to.MAC, to.VLAN = podsMAC, 7
			difftest.Must(t, k.ConfigureVF(vf, to))
		}, did: []string{settings.VFMAC, restore.Driver, settings.Name, settings.MAC, settings.VFVLAN}},
		{name: "the pod unbound the driver", does: func(t *testing.T, k *restoretest.Kernel, _ restore.Snapshot) {
			difftest.Must(t, k.Write("bus/pci/drivers/igbvf/unbind", vf))
		}, did: []string{restore.Driver, settings.Name, settings.MAC}},
		{name: "vfio-pci, which takes the altname away", altName: "enp1s0f0v0", does: func(t *testing.T, k *restoretest.Kernel, f restore.Snapshot) {
			difftest.Must(t, k.Host().Bind(f, "vfio-pci"))
		}, did: []string{restore.Driver, settings.Name, settings.MAC, settings.AltNames}},
		{name: "its namespace ended, and it keeps an altname", altName: "enp1s0f0v0", does: gone, did: []string{settings.Name, settings.MTU, settings.MAC}},
		// Binding the driver again removes what nobody can set, or see.
		{name: "the pod left what only a reset ends", reset: restore.Always, does: func(t *testing.T, k *restoretest.Kernel, _ restore.Snapshot) {
			difftest.Must(t, k.Move(vf, "", netns, "eth2"), k.Configure(vf, settings.Dump{"rtnetlink-99": "07000000"}), k.Stack(vf, "hidden vlan"), k.EndNetns(netns))
		}, did: []string{restore.Reset, settings.Name, settings.MAC}},
		{name: "nothing, and a reset", reset: restore.Auto, does: nothing, did: []string{restore.Reset, settings.Name, settings.MAC}},
		// That the unbind returns proves that nobody has it open. The others are the probe, and driver_override twice.
		{name: "a reset on vfio-pci", reset: restore.Auto, onVFIO: true, does: nothing, did: []string{restore.Reset}, changes: 4},
	}
}

// The PF's interface may be in another network namespace, and it has none while its driver is bound again. Its VFs may
// remain during this time. Only the PF can change the VLAN.
func TestRestoreFailsWhilePFIsAway(t *testing.T) {
	const pf, other, net = "0000:01:00.0", "/var/run/netns/other", "kernel/sys/bus/pci/devices/0000:01:00.0/net"
	for name, test := range map[string]struct {
		away, back func(k *restoretest.Kernel, dir string) error
		look       error
	}{
		"in a namespace": {
			func(k *restoretest.Kernel, _ string) error { return k.Move(pf, "", other, "net5") },
			func(k *restoretest.Kernel, _ string) error { return k.Move(pf, other, "", "eth0") },
			restore.ErrNotOnNode,
		},
		"without an interface": {
			func(_ *restoretest.Kernel, dir string) error {
				return os.Rename(filepath.Join(dir, net), filepath.Join(dir, "away"))
			},
			func(_ *restoretest.Kernel, dir string) error {
				return os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, net))
			},
			nil,
		},
	} {
		dir := t.TempDir()
		k := kernel(t, dir, "igb-sriov")
		h := k.Host()
		f := look(t, h, function(vf, "eth2"))
		difftest.Must(t, k.ConfigureVF(vf, settings.VF{VLAN: 7, Trust: true, VLANProto: 0x8100, SpoofCheck: true}), test.away(k, dir))
		did, err := h.Restore(f)
		difftest.Is(t, err, restore.ErrNotOnNode)
		difftest.Same(t, name+": did without its PF", did, []string(nil))
		_, err = h.Look(function(vf, "eth2"))
		difftest.Is(t, err, test.look)
		difftest.Must(t, test.back(k, dir))
		did, err = h.Restore(f)
		difftest.Must(t, err)
		difftest.Same(t, name+": did with its PF", did, []string{settings.VFVLAN, settings.VFTrust})
		difftest.Equal(t, look(t, h, function(vf, "eth2")), f)
	}
}

var errKilled = errors.New("killed")

// After an interruption at any change, the next process completes the restore.
func TestRestoreUndoesAllChangesDespiteInterruption(t *testing.T) {
	for _, l := range lives() {
		for step := 0; ; step++ {
			k, h, f := igb(t)
			ref := function(vf, "eth2")
			if l.onVFIO {
				ref = function("0000:01:10.6", "")
			}
			if l.altName != "" {
				difftest.Must(t, k.SetAltName(named(k, "eth2"), l.altName, true))
			}
			f = look(t, h, ref)
			l.does(t, k, f)
			f.Reset = l.reset
			left := step
			k.Fault = func() error {
				if left--; left < 0 {
					return errKilled
				}
				return nil
			}
			did, err := h.Restore(f)
			if k.Fault = nil; left >= 0 {
				f.Reset = ""
			} else if !errors.Is(err, errKilled) || step == 0 && did != nil {
				t.Errorf("%s, step %d: did %q, %v", l.name, step, did, err)
			}
			again, failed := k.Host().Restore(f)
			if failed != nil {
				t.Fatalf("%s, step %d: %v", l.name, step, failed)
			}
			f.Reset = ""
			if diff := cmp.Diff(f, look(t, h, ref)); diff != "" {
				t.Fatalf("%s, step %d: %s", l.name, step, diff)
			}
			difftest.Must(t, h.Alone(f))
			if left >= 0 {
				if err != nil || step < max(len(l.did), l.changes) || again != nil {
					t.Errorf("%s: %d changes, %v; once more: %q", l.name, step, err, again)
				}
				difftest.Same(t, l.name+": did", did, l.did)
				break
			}
		}
	}
}

func TestRestoreFailsWhileInterfaceIsAway(t *testing.T) {
	k, h, f := igb(t)
	difftest.Must(t, k.Move(vf, "", netns, "net1"))
	var err error
	for _, f.Reset = range []restore.ResetMode{"", restore.Auto} {
		var did []string
		did, err = h.Restore(f)
		difftest.Is(t, err, restore.ErrNotOnNode)
		difftest.Says(t, err, "eth2")
		difftest.Equal(t, did, []string(nil))
	}
	_, err = h.Look(function(vf, "eth2"))
	difftest.Is(t, err, restore.ErrNotOnNode)
	f.Device = "0000:01:10.7"
	_, err = h.Restore(f)
	difftest.Is(t, err, restore.ErrGone)
	_, err = h.Look(function("0000:01:10.7", "eth9"))
	difftest.Is(t, err, restore.ErrGone)
	difftest.Is(t, h.MayBind(f, "vfio-pci"), restore.ErrGone)
	_, err = h.Look(hostdev.Ref{Kind: hostdev.SF, Aux: "mlx5_core.sf.4"})
	difftest.Is(t, err, restore.ErrGone)
}

// VFs that were created again, or another card, keep their settings.
func TestRestoreDoesNotChangeReplacedDevice(t *testing.T) {
	k, h, f := igb(t)
	if other := look(t, h, function("0000:01:10.2", "eth3")); !f.IsReplaced(other) || f.IsReplaced(f) {
		t.Errorf("got %+v and %+v", f, other)
	}
	f.Inode++
	difftest.Must(t, k.Write("bus/pci/drivers/igbvf/unbind", vf))
	k.Fault = func() error { t.Error("it is changed"); return nil }
	if did, err := h.Restore(f); !errors.Is(err, restore.ErrGone) || did != nil {
		t.Errorf("got %q, %v", did, err)
	}
}

// While a port is in a pod, the other port keeps its settings.
func TestRestoreDoesNotChangeOtherPort(t *testing.T) {
	dir := t.TempDir()
	h := kernel(t, dir, "netdevsim-switchdev").Host()
	f, neighbour := look(t, h, hostdev.Ref{IfName: "eth1"}), look(t, h, hostdev.Ref{IfName: "eth0"})
	if did, err := h.Restore(f); err != nil || did != nil {
		t.Errorf("unchanged: did %q: %v", did, err)
	}
	for _, of := range []string{"class/net/eth1", "devices/netdevsim1/net/eth1"} {
		difftest.Must(t, os.RemoveAll(filepath.Join(dir, "kernel/sys", of)))
	}
	if did, err := h.Restore(f); !errors.Is(err, restore.ErrNotOnNode) || did != nil {
		t.Errorf("did %q: %v", did, err)
	}
	difftest.Equal(t, look(t, h, hostdev.Ref{IfName: "eth0"}), neighbour)
}

// A new version reads records of an older version.
func TestSnapshotHasKeysOfSettings(t *testing.T) {
	got, err := json.Marshal(restore.Snapshot{Bus: "pci", Device: "0000:03:00.2", Settings: settings.Dump{settings.AltNames: "a", "group": "01000000"}, VF: &settings.VF{
		MAC: "02:00:00:00:00:01", VLAN: 7, QoS: 3, VLANProto: 0x88a8, Trust: true, SpoofCheck: true, LinkState: 2, MinRate: 10, MaxRate: 200,
		NodeGUID: "00:11:22:33:44:55:66:77", PortGUID: "00:11:22:33:44:55:66:78",
	}})
	difftest.Must(t, err)
	difftest.Equal(t, string(got), `{"bus":"pci","device":"0000:03:00.2",`+
		`"dump":{"altnames":"a","group":"01000000"},`+
		`"vf":{"mac":"02:00:00:00:00:01","vlan":7,"qos":3,"vlanProto":34984,"trust":true,"spoofCheck":true,"linkState":2,"minRate":10,"maxRate":200,`+
		`"nodeGUID":"00:11:22:33:44:55:66:77","portGUID":"00:11:22:33:44:55:66:78"}}`)
}

// A pod may give its interface the name that a device of another pod had on the node.
func TestNameIsRestoredAfterOtherDeviceLosesAltName(t *testing.T) {
	const other = "0000:01:10.2" // eth3
	k, h, f := igb(t)
	g := look(t, h, function(other, "eth3"))
	difftest.Must(t, k.Move(vf, "", netns, "net1"), k.Move(other, "", netns+"2", "net2"))
	difftest.Must(t, k.Configure(vf, settings.Dump{settings.AltNames: "eth3"}), k.Use(other, 9000, podsMAC))
	difftest.Must(t, k.EndNetns(netns), k.EndNetns(netns+"2"))
	did, err := h.Restore(g)
	difftest.Equal(t, difftest.As[*restore.Mismatch](t, err).Settings, []string{settings.Name})
	difftest.Says(t, err, "eth3", `altname of interface "net1"`, vf)
	difftest.Equal(t, did, []string{settings.MTU, settings.MAC})
	for _, d := range []restore.Snapshot{f, g} {
		_, err := h.Restore(d)
		difftest.Must(t, err)
	}
	difftest.Equal(t, look(t, h, function(vf, "eth2")), f)
	difftest.Equal(t, look(t, h, function(other, "eth3")), g)
}

// The snapshot may have an altname that an earlier pod gave to the interface, and that is the name of another one. An
// altname of another one may be a pod's, and free after the restore of that.
func TestAltNameIsNotRestoredWhileItNamesAnotherInterface(t *testing.T) {
	k, h, _ := igb(t)
	difftest.Must(t, k.SetAltName(named(k, "eth2"), "eth9", true))
	f := look(t, h, function(vf, "eth2"))
	difftest.Must(t, k.Move(vf, "", netns, "net1"), k.Configure(vf, settings.Dump{settings.AltNames: ""}), k.EndNetns(netns))
	difftest.Must(t, k.SetAltName(named(k, "eth3"), "eth9", true))
	_, err := h.Restore(f)
	difftest.Equal(t, difftest.As[*restore.Mismatch](t, err).Settings, []string{settings.AltNames})
	difftest.Says(t, err, `"eth9" is taken: altname of interface "eth3" of device 0000:01:10.2`)
	difftest.Must(t, k.SetAltName(named(k, "eth3"), "eth9", false), k.Rename(named(k, "eth3"), "eth9"))
	did, err := h.Restore(f)
	difftest.Must(t, err)
	difftest.Equal(t, did, []string(nil)) // the first attempt has set the name
	delete(f.Settings, settings.AltNames)
	difftest.Equal(t, look(t, h, function(vf, "eth2")), f)
}

// overtake makes something happen before one of the next accesses to a kernel, whose caller may have read names before. It
// returns whether it has happened.
func overtake(k *restoretest.Kernel, after int, happens func()) (happened *bool) {
	happened = new(bool)
	k.Before = func() error {
		if after--; after == -1 {
			*happened = true
			happens()
		}
		return nil
	}
	return happened
}

// udev and NetworkManager may change the new interface of a reset at any moment. The next attempts put it right.
func TestResetCopesWithOthers(t *testing.T) {
	for what, meddle := range map[string]func(k *restoretest.Kernel, i link.Interface) error{
		"renames it": func(k *restoretest.Kernel, i link.Interface) error {
			return k.Rename(i, "udev0")
		},
		"sets MTU and MAC":         func(k *restoretest.Kernel, _ link.Interface) error { return k.Use(vf, 9000, podsMAC) },
		"adds its name as altname": func(k *restoretest.Kernel, i link.Interface) error { return k.SetAltName(i, "eth2", true) },
	} {
		for calls, meddled := 0, new(true); *meddled; calls++ {
			k, h, f := igb(t)
			f.Reset = restore.Always
			meddled = overtake(k, calls, func() {
				if now, err := k.Host().Look(function(vf, "")); err == nil && now.IfName != "" {
					_ = meddle(k, named(k, now.IfName)) // it may have that name, or be in the way of itself
				}
			})
			did, err := h.Restore(f)
			k.Before = nil
			for attempt := 0; err != nil && attempt < 3; attempt++ {
				if !errors.Is(err, restore.ErrNotOnNode) && !errors.As(err, new(*restore.Mismatch)) {
					t.Fatalf("%s at call %d: %v", what, calls, err)
				}
				var more []string
				more, err = k.Host().Restore(f)
				did = append(did, more...)
			}
			if f.Reset = ""; !slices.Contains(did, restore.Reset) || err != nil {
				t.Fatalf("%s at call %d: did %q, %v", what, calls, did, err)
			}
			_, err = k.Host().Restore(f) // the second look of the driver
			difftest.Must(t, err)
			difftest.Equal(t, look(t, k.Host(), function(vf, "eth2")), f)
		}
	}
}

func TestInterfaceThatTookNameIsNotMistakenForDevice(t *testing.T) {
	const other = "0000:01:10.2" // eth3
	for name, take := range map[string]func(*restoretest.Kernel) error{
		"name":    func(k *restoretest.Kernel) error { return k.Rename(named(k, "eth3"), "eth2") },
		"altname": func(k *restoretest.Kernel) error { return k.SetAltName(named(k, "eth3"), "eth2", true) },
	} {
		for _, do := range []func(h *restore.Devices, f restore.Snapshot){
			func(h *restore.Devices, _ restore.Snapshot) {
				if got, err := h.Look(function(vf, "eth2")); got.MTU == 9000 {
					t.Errorf("%s: got the other interface %+v, %v", name, got, err)
				}
			},
			func(h *restore.Devices, f restore.Snapshot) { _, _ = h.Restore(f) },
		} {
			for calls, happened := 0, new(true); *happened; calls++ {
				k, h, f := igb(t)
				difftest.Must(t, k.Use(vf, 1400, podsMAC), k.Use(other, 9000, podsMAC))
				happened = overtake(k, calls, func() {
					difftest.Must(t, k.Rename(named(k, "eth2"), "away"), take(k))
				})
				do(h, f)
				k.Before = nil
				if g := look(t, h, function(other, "")); g.MTU != 9000 || g.MAC != podsMAC {
					t.Errorf("%s, call %d: the other interface has MTU %d and MAC %s", name, calls, g.MTU, g.MAC)
				}
			}
		}
	}
}

// A pod may run while the driver is updated. The notes of earlier builds lack settings: those that harm the next pod get the
// values of a new interface, and no device is withheld.
func TestNotesOfEarlierBuildsRestoreWhatTheyHave(t *testing.T) {
	const base = `"bus":"pci","device":"0000:01:10.0","driver":"igbvf","ifName":"eth2","mtu":1500,"mac":"MAC","vf":{"vlanProto":33024,"spoofCheck":true}`
	for name, test := range map[string]struct {
		note string
		want []string
	}{
		"without settings":      {`{` + base + `}`, []string{"mode", "multicast", "noarp", "promisc", "tcx-ingress", "xdpgeneric"}},
		"with six settings":     {`{` + base + `,"settings":{"altNames":["was"],"txQueueLen":1000}}`, []string{settings.AltNames, "alias", "mode", "multicast", "noarp", "promisc", "tcx-ingress", "xdpgeneric"}},
		"with hashes of FNV":    {`{` + base + `,"dump":{"ethtool-99":"05","features":"05","multicast":"on","rings":"05","txqueuelen":"e8030000","rss":"fnv128a:07"}}`, []string{settings.AltNames, "alias", "mode", "multicast", "noarp", "promisc", "tcx-ingress", "xdpgeneric"}},
		"of this build, no key": {`{"version":1,` + base + `}`, []string{"mode", "multicast", "noarp", "promisc", "tcx-ingress", "xdpgeneric"}},
	} {
		k, h, _ := igb(t)
		difftest.Must(t, k.Move(vf, "", netns, "eth2"), k.Configure(vf, settings.Dump{
			settings.AltNames: "x", "alias": "78", "promisc": "on", "noarp": "on", "multicast": "", "mode": "01", "xdpgeneric": "program 7", "tcx-ingress": "programs [8]", "rss": "sha256:07",
		}), k.EndNetns(netns))
		var f restore.Snapshot
		mac := named(k, "eth2").MAC.String()
		difftest.Must(t, json.Unmarshal([]byte(strings.Replace(test.note, "MAC", mac, 1)), &f))
		did, err := h.Restore(f)
		difftest.Must(t, err)
		slices.Sort(did[len(did)-min(len(did), len(test.want)):])
		want := slices.Sorted(slices.Values(test.want))
		difftest.Same(t, name, slices.Sorted(slices.Values(did)), want)
		now := look(t, h, function(vf, "eth2")).Settings
		if faults := settings.Usable(settings.Condition{Dump: now}); faults != nil || now["promisc"] != "" {
			t.Errorf("%s: the next pod gets %v", name, faults)
		}
	}
}

// A pod may leave interfaces on its own. Without a reset those that can be named are removed, and the device is withheld
// while there are others.
func TestInterfacesOnDeviceAreRemovedOrKeepItWithheld(t *testing.T) {
	for _, mode := range []restore.ResetMode{"", restore.Never, restore.Auto, restore.Always} {
		for _, upper := range []string{"macvlan spy", "hidden macvlan"} {
			k, h, f := igb(t)
			f.Reset = mode
			difftest.Must(t, k.Move(vf, "", netns, "eth2"), k.Stack(vf, upper), k.EndNetns(netns))
			if err := h.Alone(f); err == nil || !strings.Contains(err.Error(), upper+" would receive the frames") {
				t.Errorf("%q, %s: before a lease: %v", mode, upper, err)
			}
			_, err := h.Restore(f)
			if withheld := (mode == "" || mode == restore.Never) && upper == "hidden macvlan"; withheld {
				m := difftest.As[*restore.Mismatch](t, err)
				difftest.Equal(t, m.Settings, []string{restore.Stacked})
				if m.Harmless || !strings.Contains(err.Error(), "after later pods") {
					t.Errorf("%q, %s: %v", mode, upper, err)
				}
				continue
			}
			difftest.Must(t, err)
			difftest.Must(t, h.Alone(f))
		}
	}
}

// Other network namespaces are searched for interfaces on a device, unless that has been done and nothing has failed since.
func TestOtherNamespacesAreSearchedAfterFailedRestore(t *testing.T) {
	k, h, f := igb(t)
	difftest.Must(t, h.Alone(f), k.Stack(vf, "vlan spy"), h.Alone(f), k.Move(vf, "", netns, "net1"), k.EndNetns(netns))
	k.Fault = func() error { return errKilled }
	_, err := h.Restore(f)
	difftest.Is(t, err, errKilled)
	k.Fault = nil
	difftest.Must(t, k.Move(vf, "", netns+"2", "net1"), k.Stack(vf, "vlan spy"), k.Move(vf, netns+"2", "", f.IfName))
	difftest.Says(t, h.Alone(f), "vlan spy would receive the frames")
	_, err = h.Restore(f)
	difftest.Must(t, err)
	difftest.Must(t, h.Alone(f))
}

// A reset must not remove the VFs, SFs, vDPA devices or other ports of a function, or a port that may be in another network
// namespace.
func TestFunctionWithOthersOnItIsNotReset(t *testing.T) {
	hosts := map[string][]byte{"two ports": capturetest.Ports("mlx4_core", 2), "perhaps two ports": capturetest.Ports("mlx4_core", 1)}
	for _, name := range capturetest.Names(t) {
		hosts[name] = capturetest.Text(t, name)
	}
	reset, spared := map[hostdev.Kind]int{}, map[hostdev.Kind]int{}
	for name, text := range hosts {
		file, err := capturefile.Parse(text)
		difftest.Must(t, err)
		links, err := linkhost.New(file)
		difftest.Must(t, err)
		all, _, err := hostdev.Read(hostdev.Host{Sys: sysfs.New(file.Sys()), Links: links.Links, Eswitches: links})
		difftest.Must(t, err)
		k, err := restoretest.Make(t.TempDir(), text)
		difftest.Must(t, err)
		for _, d := range all {
			f, err := k.Host().Look(d.Ref)
			if d.PCI == "" || d.Driver == "" || err != nil { // its interface is elsewhere
				continue
			}
			f.Reset = restore.Always
			did, err := k.Host().Restore(f)
			onIt := strings.Contains(name, "ports") || slices.ContainsFunc(all, func(other *hostdev.Device) bool { return other.Parent == d })
			if is := slices.Contains(did, restore.Reset); is == onIt {
				t.Errorf("%s, %s: reset %v, with others on it %v: %v", name, d.PCI, is, onIt, err)
			} else if is {
				reset[d.Kind]++
			} else {
				spared[d.Kind]++
			}
		}
	}
	for _, kind := range []hostdev.Kind{hostdev.PF, hostdev.VF} {
		if reset[kind] == 0 || spared[kind] == 0 {
			t.Errorf("reset %v, spared %v", reset, spared)
		}
	}
}

// A newer kernel may have settings that this package cannot set. They do not take the node's VFs away, unless their
// rule says so. The driver is only bound again if tests have done so, or the rule asks for it.
func TestWhatCannotBeSetIsReported(t *testing.T) {
	const unknown = "rtnetlink-99"
	igb, mlx := [3]string{"igb-sriov", vf, "eth2"}, [3]string{"mlx5-switchdev", "0000:03:00.4", "enp3s0f0v2"}
	for name, test := range map[string]struct {
		at       [3]string // host, address and interface
		setting  string
		rule     restore.Snapshot
		harmless bool
	}{
		"unknown":                      {igb, unknown, restore.Snapshot{}, true},
		"unknown, and withheld":        {igb, unknown, restore.Snapshot{Withhold: true}, false},
		"known":                        {igb, "xdpoffload", restore.Snapshot{}, false},
		"never reset":                  {igb, unknown, restore.Snapshot{Reset: restore.Never}, true},
		"no test has bound its driver": {mlx, unknown, restore.Snapshot{Reset: restore.Auto}, true},
		"no VF":                        {[3]string{"virtio-vm", "0000:00:03.0", "eth0"}, unknown, restore.Snapshot{Reset: restore.Auto}, true},
	} {
		t.Run(name, func(t *testing.T) {
			k := kernel(t, t.TempDir(), test.at[0])
			f := look(t, k.Host(), function(test.at[1], test.at[2]))
			f.Reset, f.Withhold = test.rule.Reset, test.rule.Withhold
			difftest.Must(t, k.Move(f.Device, "", netns, f.IfName), k.Configure(f.Device, settings.Dump{test.setting: "07000000"}), k.EndNetns(netns))
			k.Fault = func() error { return errors.New("firmware says no") }
			did, err := k.Host().Restore(f)
			m := difftest.As[*restore.Mismatch](t, err)
			difftest.Equal(t, m.Settings, []string{test.setting})
			difftest.Same(t, "harmless", m.Harmless, test.harmless)
			difftest.Equal(t, did, []string(nil))
			difftest.Says(t, err, test.setting+" is 7, was none): firmware says no")
		})
	}
}
