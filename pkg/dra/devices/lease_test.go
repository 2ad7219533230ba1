package devices_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// If Multus has attached the device, to the claim's pod or to another pod, no plugin of the claim runs. The
// error names both pods.
func TestDeviceHeldThroughMultusIsNotAttached(t *testing.T) {
	const other, pfLease, vfLease = "is held by pod ns/other", "pci-0000:03:00.0", "pci-0000:03:00.2"
	multus := func(pod, sandbox string, lease journal.DeviceLease) func(*dratest.Rig) {
		return func(r *dratest.Rig) { r.RecordMultus(dratest.MultusEntry(r.Sandbox(sandbox, pod), lease)) }
	}
	for name, test := range map[string]struct {
		device, plugin string
		held           func(r *dratest.Rig) // records the other holder
		want           []string             // parts of the error; nil = attached
	}{
		"to another pod": {dratest.VF0, "sriov", multus("other", "s0", dratest.ExclusiveLease(vfLease)), []string{
			"claim ns/claim-u1", "pci-0000-03-00-2 (0000:03:00.2) " + other + " (net7, network sriov-net)", "pod ns/pod (net1) cannot have it too"}},
		"its PF, to another pod": {dratest.VF0, "sriov", multus("other", "s0", dratest.ExclusiveLease(pfLease)), []string{other + " (net7"}},
		"an SF": {dratest.SF4, `host-device","capabilities":{"deviceID":true},"x":"`, multus("other", "s0", dratest.ExclusiveLease("auxiliary-mlx5_core.sf.4")),
			[]string{"mlx5_core.sf.4) " + other}},
		"by sriov-cni alone": {dratest.VF0, "sriov", func(r *dratest.Rig) {
			difftest.Must(r.T, os.WriteFile(filepath.Join(r.Options.Devices.Journal.SRIOVLocks, "0000:03:00.2"), []byte(filepath.Join(r.Dir, "netns/s0")), 0o600))
		}, []string{other + " (by sriov-cni)"}},
		"to an unknown pod, because its parents cannot be read": {dratest.VF0, "sriov", func(r *dratest.Rig) {
			r.Options.Devices.Lineage = func(string) ([]sysfs.Object, error) { return nil, errors.New("no answer") }
		}, []string{"no answer"}},
		"to the pod itself": {dratest.VF0, "sriov", multus("pod", "s1", dratest.ExclusiveLease(vfLease)), nil},
		"to a deleted pod": {dratest.VF0, "sriov", func(r *dratest.Rig) {
			multus("other", "s9", dratest.ExclusiveLease(vfLease))(r)
			r.RemoveNetns(r.Sandbox("s9", "other"))
		}, nil},
		"no device": {dratest.VF0, "sriov", func(*dratest.Rig) {}, nil},
	} {
		t.Run(name, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			var told []claim.Notice
			r.Options.Notify = func(n claim.Notice) { told = append(told, n) }
			r.Options.Devices.Journal = dratest.JournalIn(r.Dir, "boot1")
			r.Options.Devices.Journal.SRIOVLocks = t.TempDir()
			r.Offer("mlx5-switchdev", "")
			r.Start()
			r.Prepare(dratest.DeviceClaim("u1", test.device, dratest.Network(`{"type":"`+test.plugin+`"}`)))
			difftest.Must(t, r.RunPod(r.Sandbox("s0", "other")))
			test.held(r)
			err := r.RunPod(r.Sandbox("s1", "pod"))
			if test.want == nil {
				difftest.Must(t, err)
				return
			}
			difftest.Says(t, err, test.want...)
			if len(told) != 1 || !strings.Contains(told[0].Text, test.want[0]) {
				t.Errorf("notices: %+v", told)
			}
			r.ExpectCalls("", 0)
		}))
	}
}

// The scheduler may give a claim another device while the first one is not restored.
func TestReallocatedClaimKeepsLeaseOfUndeletedDevice(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		second := dratest.DeviceClaim("u1", dratest.VF2, dratest.Network(`{"type":"sriov"}`))
		r.ReadClaims(second, nil)
		r.UseJournal("mlx5-switchdev", "")
		r.Start()
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)))
		r.Plugins.SetHook(dratest.Fail("", ""))
		_ = r.RunPod(r.Sandbox("s1", "pod"))
		r.EndPod(r.Sandbox("s1", "pod"))
		r.Plugins.SetHook(dratest.Fail("", "s1"))
		time.Sleep(30 * time.Minute)
		r.Prepare(second)
		sandbox := r.RunSandbox("s2", "pod")
		r.ExpectHolders("pci-0000:03:00.2", "claim ns/claim-u1")
		r.ExpectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		r.Plugins.SetHook(nil)
		time.Sleep(2 * time.Hour)
		dratest.WaitIdle()
		r.ExpectHolders("pci-0000:03:00.2") // the device is restored
		r.ExpectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		r.EndAndUnprepare(sandbox, "u1")
		r.ExpectHolders("pci-0000:03:00.4")
	})
}

// After a pod was deleted by force, the scheduler allocates its device to the next pod while the first pod or
// its DEL still runs, or just before the driver withheld the device of a DEL that was given up. Neither that claim nor
// Multus gets the device before it is restored.
func TestDeviceStaysWithClaimUntilRestored(t *testing.T) {
	t.Parallel()
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		b.Options.Devices.Journal = dratest.JournalIn(b.Dir, "boot1")
		b.Start()
		b.AttachDevice(dratest.VF2, "vfio-pci")
		b.Prepare(dratest.OnDevice(b.ClaimOf("b", "u2", "next", dratest.Net("x", "net1", "")), 0, dratest.VF2, "vfio-pci"))
		refused := func(sandbox string, parts ...string) {
			t.Helper()
			err := b.RunPod(b.Sandbox(sandbox, "next"))
			difftest.Says(t, err, append(parts, dratest.VF2, "claim ns/a")...)
			if err != nil && strings.Contains(err.Error(), "request a device by a claim or by Multus") {
				t.Errorf("the device was requested only once: %v", err)
			}
			b.ExpectCalls("ADD "+sandbox, 0)
			b.EndPod(b.Sandbox(sandbox, "next"))
		}
		refused("s2", "is still held by")
		b.Plugins.SetHook(dratest.Fail("DEL", "s1"))
		b.EndPod(b.Sandbox("s1", "pod"))
		refused("s3", "is still held by")
		b.Unprepare("u1")
		b.ExpectPhase("Undeleted", 1)
		refused("s4", "was given up", "cni-dra-driver clear u1")
		difftest.As[*journal.HeldError](t, b.Options.Devices.Journal.Put(dratest.MultusEntry(b.Sandbox("s9", "other"), dratest.ExclusiveLease("pci-0000:03:00.4")), nil))
		b.Plugins.SetHook(nil)
		time.Sleep(2 * time.Hour) // the hourly retry
		dratest.WaitIdle()
		dratest.ExpectRestored(t, b.Kernel)
		b.EndPod(b.RunSandbox("s5", "next"))
		b.Unprepare("u2")
		dratest.WaitIdle()
		dratest.ExpectRestored(t, b.Kernel)
		b.ExpectNothing()
	})
}

// A NIC that is not on a PCI bus has no lease, but only one claim at a time can have it. Its interface name may
// have changed in a pod.
func TestNonPCIPortStaysWithClaimUntilReleased(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		const port = "dev-netdevsim-netdevsim1-p1" // the interface eth0
		n := r.Offer("netdevsim-switchdev", "devices: [{ifNames: [eth0, net1], sharing: exclusive}]")
		r.Options.Devices.Journal = dratest.JournalIn(r.Dir, "boot1")
		agent := r.Start()
		r.Plugins.SetHook(dratest.Fail("DEL", ""))
		first, second := dratest.DeviceClaim("u1", port, `"device":[],`+dratest.Network(`{"type":"x"}`)), dratest.DeviceClaim("u2", port, `"device":[],`+dratest.Network(`{"type":"x"}`))
		second.Status.ReservedFor[0].Name, second.Status.ReservedFor[0].UID = "next", "uid-next"
		sb := r.AttachPod(first)
		r.EndPod(sb)
		dratest.WaitIdle() // calls return before everything is on record
		n.Text = bytes.ReplaceAll(n.Text, []byte("eth0"), []byte("net1"))
		for name := range dratest.Survey(agent) {
			if agent.Node.Withheld()[name] == nil {
				t.Errorf("%s is offered", name)
			}
		}
		r.Prepare(second)
		difftest.Says(t, r.RunPod(r.Sandbox("s2", "next")), port, "is still held by claim ns/claim-u1")
	})
}

// Multus may have attached the device of a claim without a network.
func TestDELIsNotRetriedWhileClaimWithoutNetworkHasDevice(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		r.Plugins.SetHook(dratest.Fail("", ""))
		r.GiveUpDEL(dratest.DeviceClaim("u1", dratest.VF3, dratest.Network(`{"type":"sriov"}`)))
		var met atomic.Bool
		lineage, tried := r.Options.Devices.Lineage, r.Plugins.Calls("DEL")
		r.Options.Devices.Lineage = func(string) ([]sysfs.Object, error) { return nil, errors.New("no answer") }
		time.Sleep(2 * time.Hour)
		r.ExpectCalls("DEL", tried) // another pod may have it
		r.Options.Devices.Lineage = func(device string) ([]sysfs.Object, error) {
			if !met.Swap(true) { // the claim has no lease yet
				time.Sleep(2 * time.Hour)
			}
			return lineage(device)
		}
		r.Prepare(dratest.DeviceClaim("u2", dratest.VF3, ""))
		time.Sleep(5 * time.Hour)
		r.ExpectCalls("DEL", tried)
		r.ExpectPhase("Undeleted", 1)
		r.Unprepare("u2")
		r.Plugins.SetHook(nil)
		time.Sleep(2 * time.Hour)
		r.ExpectNothing()
	})
}

// The lease of a claim whose record is damaged keeps other claims out, but not the claim itself.
func TestClaimWithDamagedRecordHasItsDeviceAgain(t *testing.T) {
	dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
		r.Options.Devices.Journal = dratest.JournalIn(r.Dir, "boot1")
		r.Offer("mlx5-switchdev", "devices: [{pciAddresses: ['0000:03:00.2'], sharing: exclusive}]")
		r.Start()
		claim := dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`))
		r.Prepare(claim)
		difftest.Must(t, r.RunPod(r.Sandbox("s1", "pod")))
		r.Stop()
		difftest.Must(t, os.WriteFile(filepath.Join(r.Options.StateDir, "u1.json"), []byte(`{"sch`), 0o600))
		r.Start()
		other := dratest.DeviceClaim("u2", dratest.VF0, dratest.Network(`{"type":"sriov"}`))
		r.PrepareFails(other, "claim ns/claim-u1 has it")
		r.Prepare(claim)
		difftest.Must(t, r.RunPod(r.Sandbox("s2", "pod")))
		r.EndPod(r.Sandbox("s2", "pod"))
		r.Unprepare("u1")
		r.Prepare(other)
	})(t)
}

// The offer, Prepare and the start of a sandbox agree about a device while a pod of Multus, or a claim whose record cannot
// be read, has it or a related device, alone or shared. The ports of a function have one lease, because they share its RDMA
// devices and device nodes.
func TestDeviceIsOfferedWhileItsLeaseIsFree(t *testing.T) {
	ports, igb := capturetest.Ports("mlx4_core", 2), capturetest.Text(t, "igb-sriov")
	for rules, text := range map[string][]byte{
		"ifNames: [p1], sharing: exclusive": ports, "ifNames: [p2], sharing: exclusive": ports, "ifNames: [p1, p2], sharing: shared": ports,
		"pciAddresses: ['0000:41:10.0'], sharing: exclusive": igb, "ifNames: [eth1], sharing: shared": igb,
		"ifNames: [eth0], sharing: exclusive": capturetest.Text(t, "virtio-vm"),
		`select: 'device.attributes["resource.kubernetes.io"].pciBusID == "0000:65:00.4"', sharing: exclusive`: capturetest.Text(t, "mlx5-vdpa"),
	} {
		t.Run(rules, dratest.Bubble(func(t *testing.T, r *dratest.Rig) {
			n, j := dratest.NewNode(t, "i40e"), dratest.JournalIn(r.Dir, "boot1")
			n.Text, n.Rules = text, "devices: [{"+rules+"}]"
			r.Options.Devices.Inventory, r.Options.Devices.Lineage, r.Options.Devices.Journal = n.Inventory(), n.Lineage, j
			difftest.Must(t, os.MkdirAll(r.Options.StateDir, 0o755))
			difftest.Must(t, os.WriteFile(filepath.Join(r.Options.StateDir, "lost.json"), nil, 0o644))
			r.Start()
			host, err := n.Host()
			difftest.Must(t, err)
			devices, _, err := inventory.Read(host)
			difftest.Must(t, err)
			offered := dratest.Survey(r.Agent)
			for _, d := range devices {
				as, is := offered[d.Name]
				if !is {
					continue
				}
				claim := dratest.DeviceClaim("u1", d.Name, `"device":[],`+dratest.Network(`{"type":"x"}`))
				if inventory.Sharing(as) == journal.Shared {
					claim.Status.Allocation.Devices.Results[0].ShareID = new(types.UID("share"))
				}
				alone, err := journal.LeasesOf(host.Sys, journal.Exclusive, d.LeaseID())
				difftest.Must(t, err)
				entry := dratest.MultusEntry(r.Sandbox("s0", "other"), alone...)
				sb := r.AttachPod(claim)
				difftest.As[*journal.HeldError](t, j.Free(entry))
				r.EndPod(sb)
				r.Unprepare("u1")
				difftest.Must(t, j.Free(entry))
				for _, other := range devices {
					for _, mode := range []journal.SharingMode{journal.Exclusive, journal.Shared} {
						entry.Leases, err = journal.LeasesOf(host.Sys, mode, other.LeaseID())
						difftest.Must(t, err)
						what := fmt.Sprintf("%s, while another has %s (%s)", d.Name, other.Name, mode)
						agreeWhileHeld(r, what+" through Multus", claim, func() { r.RecordMultus(entry) }, func() error { return j.Forget(entry) })
						lost := &journal.Claim{UID: "lost", Namespace: "ns", Name: "other", Leases: entry.Leases}
						agreeWhileHeld(r, what+" by a claim", claim, func() { difftest.Must(t, j.Hold(lost)) }, func() error { return j.ReleaseIf("lost", func() error { return nil }) })
					}
				}
			}
		}))
	}
}

// agreeWhileHeld checks that a claim's device is offered and prepared if and only if its pod can start, while ns/other holds
// devices.
func agreeWhileHeld(r *dratest.Rig, what string, claim *resourceapi.ResourceClaim, hold func(), end func() error) {
	r.T.Helper()
	r.Prepare(claim)
	hold()
	start := r.RunPod(r.Sandbox("s1", "pod"))
	r.EndPod(r.Sandbox("s1", "pod"))
	r.Unprepare("u1")
	device, free := claim.Status.Allocation.Devices.Results[0].Device, start == nil
	_, is := dratest.Survey(r.Agent)[device]
	offer, err := state.ReadOffer(r.Options.StateDir)
	difftest.Must(r.T, err)
	why := offer.Devices[slices.IndexFunc(offer.Devices, func(d state.Offered) bool { return d.Name == device })].Why
	_, again := r.Agent.Prepare(r.T.Context(), claim, 0)
	r.Unprepare("u1")
	if is != free || (again == nil) != free || !free && !(strings.Contains(why, "ns/other") && strings.Contains(start.Error(), device)) {
		r.T.Errorf("%s: offered %v (%s); Prepare: %v; start: %v", what, is, why, again, start)
	}
	difftest.Must(r.T, end())
}

// Whoever has the lock of all leases for long does not delay a search for leftovers where there are none.
func TestLeasesOfClaimsOnRecordAreLeftWithoutTheLock(t *testing.T) {
	j := dratest.JournalIn(t.TempDir(), "boot1")
	for _, uid := range []string{"u1", "u2"} {
		difftest.Must(t, j.Hold(&journal.Claim{UID: uid, Namespace: "ns", Name: uid, Leases: []journal.DeviceLease{dratest.ExclusiveLease("pci-" + uid)}}))
	}
	difftest.Must(t, j.Alone(func() error { return devices.CollectLeases(j, func(string) bool { return true }) }))
	difftest.Must(t, devices.CollectLeases(j, func(uid string) bool { return uid == "u1" }))
	left, err := j.Claims()
	difftest.Must(t, err)
	difftest.Equal(t, left, []string{"u1"})
	file := filepath.Join(t.TempDir(), "file")
	difftest.Must(t, os.Symlink(file, file), j.Hold(&journal.Claim{UID: "u1", Namespace: "ns", Name: "u1", Files: map[string]string{file + "/below": ""}}))
	difftest.Says(t, devices.CollectLeases(j, func(string) bool { return false }), file)
}
