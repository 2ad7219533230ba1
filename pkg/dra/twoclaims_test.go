package dra_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// After a pod was deleted by force, the scheduler allocates its device to the next pod while the first pod or
// its DEL still runs.
func TestDeviceStaysWithClaimUntilReleased(t *testing.T) {
	t.Parallel()
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.attachDevice(t, vf2, "vfio-pci")
		first := b.sandbox("s1", "pod")
		b.prepare(onDevice(b.claimOf("b", "u2", "next", netRequest{"x", "net1", ""}), 0, vf2, "vfio-pci"))
		refused := func(sandbox, when string) {
			t.Helper()
			says(t, b.runPod(b.sandbox(sandbox, "next")), vf2, "is still held by claim ns/a")
			b.expectCalls("ADD "+sandbox, 0)
		}
		refused("s2", "while the first pod runs")
		b.plugins.setHook(failDEL(""))
		b.endPod(first)
		refused("s3", "while its DEL fails")
		b.plugins.setHook(nil)
		b.unprepare("u1")
		expectRestored(t, b.kernel)
		next := b.runSandbox("s4", "next")
		b.endPod(next)
		b.unprepare("u2")
		expectRestored(t, b.kernel)
		b.expectNothing()
	})
}

// giveUpVF2 attaches vf2 to claim u1 and waits until its failing DEL is given up.
func (r *rig) giveUpVF2(t *testing.T) {
	t.Helper()
	r.attachDevice(t, vf2, "vfio-pci")
	r.plugins.setHook(failDEL("s1"))
	r.endPod(r.sandbox("s1", "pod"))
	r.unprepare("u1")
	r.expectPhase("Undeleted", 1)
}

// The device stays with the claim until it is restored. Neither Multus nor another claim gets it, even if the
// scheduler allocated it just before the driver withheld it.
func TestDeviceWithGivenUpDELStaysWithItsClaim(t *testing.T) {
	t.Parallel()
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.restartWithLeases()
		b.giveUpVF2(t)
		difftest.As[*journal.HeldError](t, b.options.Devices.Journal.Record(multusEntry("other", "s9", b.netns("s9"), exclusiveLease("pci-0000:03:00.4")), nil))
		b.prepare(onDevice(b.claimOf("b", "u2", "next", netRequest{"x", "net1", ""}), 0, vf2, "vfio-pci"))
		added := b.plugins.calls("ADD")
		err := b.runPod(b.sandbox("s2", "next"))
		says(t, err, vf2, "claim ns/a", "was given up", "cni-dra-driver clear u1")
		if err != nil && strings.Contains(err.Error(), "request a device by a claim or by Multus") {
			t.Errorf("the device was requested only once: %v", err)
		}
		b.expectCalls("ADD", added)
		b.endPod(b.sandbox("s2", "next"))
		b.plugins.setHook(nil)
		time.Sleep(2 * time.Hour) // the hourly retry
		waitIdle()
		must(t, b.runPod(b.sandbox("s3", "next")))
		b.endPod(b.sandbox("s3", "next"))
		b.unprepare("u2")
		waitIdle()
		expectRestored(t, b.kernel)
		b.expectNothing()
	})
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

// The DEL of host-device fails if its function was unplugged, although nothing is left to do. A function that
// appears in its place is a new device.
func TestLostDeviceIsOfferedAfterItReturns(t *testing.T) {
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		b.attachDevice(t, vf0, "")
		function, aside := filepath.Join(b.dir, "kernel/sys/bus/pci/devices/0000:03:00.2"), filepath.Join(b.dir, "aside")
		must(t, os.Rename(function, aside))
		b.plugins.setHook(failAll)
		b.endPod(b.sandbox("s1", "pod"))
		b.unprepare("u1")
		b.expectPhase("Undeleted", 1)
		must(t, os.Rename(aside, function))
		difftest.Equal(t, b.agent.Node.Withheld(), map[string]bool{})
	})
}

// Multus may have given the new device to a pod.
func TestDELOfLostDeviceWaitsWhileMultusHoldsItsReplacement(t *testing.T) {
	t.Parallel()
	inBubbleWithDevices(t, func(t *testing.T, b *rig) {
		sys, err := sysfs.Open(filepath.Join(b.dir, "kernel/sys"))
		must(t, err)
		b.options.Devices.Lineage = sys.Lineage
		b.restartWithLeases()
		b.attachDevice(t, vf0, "")
		function, err := filepath.EvalSymlinks(filepath.Join(b.dir, "kernel/sys/bus/pci/devices/0000:03:00.2"))
		must(t, err, os.Rename(function, function+".old"), os.CopyFS(function, os.DirFS(function+".old")))
		b.plugins.setHook(failAll)
		b.endPod(b.sandbox("s1", "pod"))
		b.unprepare("u1")
		b.plugins.setHook(nil)
		b.sandbox("s9", "other")
		line, err := sys.Lineage("0000:03:00.2")
		must(t, err)
		entry := multusEntry("other", "s9", b.netns("s9"), journal.DeviceLease{ID: line[0].ID, Mode: journal.Exclusive, Object: line[0].Inode})
		b.recordMultus(entry)
		tried := b.plugins.calls("DEL")
		time.Sleep(3 * time.Hour)
		b.expectCalls("DEL", tried) // another DEL would reset the other pod's device
		b.expectPhase("Undeleted", 1)
		must(t, b.options.Devices.Journal.Forget(entry))
		time.Sleep(2 * time.Hour)
		b.expectCalls("DEL", tried+1)
		b.expectNothing()
	})
}
