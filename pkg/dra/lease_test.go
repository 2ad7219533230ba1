package dra_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// If Multus has attached the device, to the claim's pod or to another pod, no plugin of the claim runs. The
// error names both pods.
func TestDeviceHeldThroughMultusIsNotAttached(t *testing.T) {
	const other, pfLease, vfLease = "is held by pod ns/other", "pci-0000:03:00.0", "pci-0000:03:00.2"
	multus := func(pod, sandbox string, lease journal.DeviceLease) func(*rig) {
		return func(r *rig) { r.recordMultus(multusEntry(pod, sandbox, r.netns(sandbox), lease)) }
	}
	for name, test := range map[string]struct {
		device, plugin string
		held           func(r *rig) // records the other holder
		want           []string     // parts of the error; nil = attached
	}{
		"to another pod": {vf0, "sriov", multus("other", "s0", exclusiveLease(vfLease)), []string{
			"claim ns/claim-u1", "pci-0000-03-00-2 (0000:03:00.2) " + other + " (net7, network sriov-net)", "pod ns/pod (net1) cannot have it too"}},
		"its PF, to another pod": {vf0, "sriov", multus("other", "s0", exclusiveLease(pfLease)), []string{other + " (net7"}},
		"an SF": {sf4, `host-device","capabilities":{"deviceID":true},"x":"`, multus("other", "s0", exclusiveLease("auxiliary-mlx5_core.sf.4")),
			[]string{"mlx5_core.sf.4) " + other}},
		"by sriov-cni alone": {vf0, "sriov", func(r *rig) {
			must(r.t, os.WriteFile(filepath.Join(r.options.Devices.Journal.SRIOVLocks, "0000:03:00.2"), []byte(r.netns("s0")), 0o600))
		}, []string{other + " (by sriov-cni)"}},
		"shared master, exclusively to another pod": {pf, "macvlan", multus("other", "s0", exclusiveLease(pfLease)), []string{other}},
		"to the pod itself":                         {vf0, "sriov", multus("pod", "s1", exclusiveLease(vfLease)), nil},
		"to a deleted pod":                          {vf0, "sriov", multus("other", "s9", exclusiveLease(vfLease)), nil},
		"another device":                            {vf0, "sriov", multus("other", "s0", exclusiveLease("pci-0000:03:00.4")), nil},
		"shared master":                             {pf, "macvlan", multus("other", "s0", journal.DeviceLease{ID: pfLease, Mode: journal.Shared}), nil},
		"no device":                                 {vf0, "sriov", func(*rig) {}, nil},
	} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			var told []claim.Notice
			r.options.Notify = func(n claim.Notice) { told = append(told, n) }
			r.options.Devices.Journal = journalIn(r.dir, "boot1")
			r.options.Devices.Journal.SRIOVLocks = t.TempDir()
			r.offer("mlx5-switchdev", "")
			r.start()
			r.prepare(ownClaim("u1", test.device, network(`{"type":"`+test.plugin+`"}`)))
			must(t, r.runPod(r.sandbox("s0", "other")))
			test.held(r)
			err := r.runPod(r.sandbox("s1", "pod"))
			if test.want == nil {
				must(t, err)
				return
			}
			says(t, err, test.want...)
			if len(told) != 1 || !strings.Contains(told[0].Text, test.want[0]) {
				t.Errorf("notices: %+v", told)
			}
			r.expectCalls("", 0)
		}))
	}
}

// The scheduler may give a claim another device while the first one is not restored.
func TestReallocatedClaimKeepsLeaseOfUndeletedDevice(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.prepareVF0()
		p.setHook(failAll)
		_ = r.runPod(r.sandbox("s1", "pod"))
		r.endPod(r.sandbox("s1", "pod"))
		p.setHook(failSandbox("s1"))
		time.Sleep(30 * time.Minute)
		r.prepare(ownClaim("u1", vf2, network(`{"type":"sriov"}`)))
		second := r.runSandbox("s2", "pod")
		r.expectHolders("pci-0000:03:00.2", "claim ns/claim-u1")
		r.expectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		waitIdle()
		r.expectHolders("pci-0000:03:00.2") // the device is restored
		r.expectHolders("pci-0000:03:00.4", "claim ns/claim-u1")
		r.endAndUnprepare(second, "u1")
		r.expectHolders("pci-0000:03:00.4")
	})
}

// After a pod was deleted by force, the scheduler allocates its device to the next pod while the first pod or
// its DEL still runs, or just before the driver withheld the device of a DEL that was given up. Neither that claim nor
// Multus gets the device before it is restored.
func TestDeviceStaysWithClaimUntilRestored(t *testing.T) {
	t.Parallel()
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.restartWithLeases()
		b.attachDevice(t, vf2, "vfio-pci")
		b.prepare(onDevice(b.claimOf("b", "u2", "next", netRequest{"x", "net1", ""}), 0, vf2, "vfio-pci"))
		refused := func(sandbox string, parts ...string) {
			t.Helper()
			err := b.runPod(b.sandbox(sandbox, "next"))
			says(t, err, append(parts, vf2, "claim ns/a")...)
			if err != nil && strings.Contains(err.Error(), "request a device by a claim or by Multus") {
				t.Errorf("the device was requested only once: %v", err)
			}
			b.expectCalls("ADD "+sandbox, 0)
			b.endPod(b.sandbox(sandbox, "next"))
		}
		refused("s2", "is still held by")
		b.plugins.setHook(failDEL("s1"))
		b.endPod(b.sandbox("s1", "pod"))
		refused("s3", "is still held by")
		b.unprepare("u1")
		b.expectPhase("Undeleted", 1)
		refused("s4", "was given up", "cni-dra-driver clear u1")
		difftest.As[*journal.HeldError](t, b.options.Devices.Journal.Record(multusEntry("other", "s9", b.netns("s9"), exclusiveLease("pci-0000:03:00.4")), nil))
		b.plugins.setHook(nil)
		time.Sleep(2 * time.Hour) // the hourly retry
		waitIdle()
		expectRestored(t, b.kernel)
		b.endPod(b.runSandbox("s5", "next"))
		b.unprepare("u2")
		waitIdle()
		expectRestored(t, b.kernel)
		b.expectNothing()
	})
}

// The ports of a function share its RDMA devices and device nodes, so the claim of one port leases the function.
func TestFunctionIsLeasedForPort(t *testing.T) {
	const function, first, second, held = "pci-0000:3b:00.0", "pci-0000-3b-00-0", "devx-pci--0000-3a3b-3a00-2e0--p1", "is held by pod ns/other"
	for name, port := range map[string]string{"first": first, "second": second} {
		t.Run(name, bubble(func(t *testing.T, r *rig, p *plugins) {
			n := newNode(t, "i40e")
			n.text, n.rules = capturetest.Ports("mlx4_core", 2), "devices: [{ifNames: ["+map[string]string{first: "p1", second: "p2"}[port]+"], sharing: exclusive}]"
			r.options.Devices.Inventory, r.options.Devices.Lineage, r.options.Devices.Journal = n.inventory(), n.lineage, journalIn(r.dir, "boot1")
			r.start()
			claim := ownClaim("u1", port, `"device":[],`+network(`{"type":"x"}`))
			r.prepare(claim)
			other := multusEntry("other", "s0", r.sandbox("s0", "other").Linux.Namespaces[1].Path, exclusiveLease(function))
			r.recordMultus(other)
			says(t, r.runPod(r.sandbox("s1", "pod")), port+" (0000:3b:00.0) "+held)
			must(t, r.options.Devices.Journal.Forget(other))
			sb := r.runSandbox("s2", "pod")
			r.expectHolders(function, "claim ns/claim-u1")
			difftest.As[*journal.HeldError](t, r.options.Devices.Journal.Record(other, nil))
			r.endAndUnprepare(sb, "u1")
			r.expectHolders(function)
		}))
	}
}

// A NIC that is not on a PCI bus has no lease, but only one claim at a time can have it. Its interface name may
// have changed in a pod.
func TestNonPCIPortStaysWithClaimUntilReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		const port = "dev-netdevsim-netdevsim1-p1" // the interface eth0
		n := r.offer("netdevsim-switchdev", "devices: [{ifNames: [eth0, net1], sharing: exclusive}]")
		r.options.Devices.Journal = journalIn(r.dir, "boot1")
		agent := r.start()
		p.setHook(failDEL(""))
		first, second := ownClaim("u1", port, `"device":[],`+network(`{"type":"x"}`)), ownClaim("u2", port, `"device":[],`+network(`{"type":"x"}`))
		second.Status.ReservedFor[0].Name, second.Status.ReservedFor[0].UID = "next", "uid-next"
		sb := r.attachPod(first)
		r.endPod(sb)
		waitIdle() // calls return before everything is on record
		n.text = bytes.ReplaceAll(n.text, []byte("eth0"), []byte("net1"))
		for name := range inventory.PublishedIn(dra.Survey(agent)) {
			if !agent.Node.Withheld()[name] {
				t.Errorf("%s is offered", name)
			}
		}
		r.prepare(second)
		says(t, r.runPod(r.sandbox("s2", "next")), port, "is still held by claim ns/claim-u1")
	})
}

// Multus may have attached the device of a claim without a network.
func TestDELIsNotRetriedWhileClaimWithoutNetworkHasDevice(t *testing.T) {
	onNode(t, func(t *testing.T, r *rig, p *plugins) {
		p.setHook(failAll)
		r.giveUpDEL(ownClaim("u1", vf3, network(`{"type":"sriov"}`)))
		var met atomic.Bool
		lineage := r.options.Devices.Lineage
		r.options.Devices.Lineage = func(device string) ([]sysfs.Object, error) {
			if !met.Swap(true) { // the claim has no lease yet
				time.Sleep(2 * time.Hour)
			}
			return lineage(device)
		}
		tried := p.calls("DEL")
		r.prepare(ownClaim("u2", vf3, ""))
		time.Sleep(5 * time.Hour)
		r.expectCalls("DEL", tried)
		r.expectPhase("Undeleted", 1)
		r.unprepare("u2")
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		r.expectNothing()
	})
}
