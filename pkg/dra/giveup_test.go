package dra_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// The administrator clears the attachment to the earlier sandbox only.
func TestClearKeepsDeviceAndInterfaceOfLaterSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.prepareVF0()
		p.setHook(failSandbox("s1"))
		_ = r.runPod(r.sandbox("s1", "pod"))
		r.endPod(r.sandbox("s1", "pod"))
		time.Sleep(30 * time.Minute)
		must(t, r.runPod(r.sandbox("s2", "pod")))
		r.expectPhase("Undeleted", 1)
		_, err := state.Clear(r.options.StateDir, "u1")
		must(t, err)
		time.Sleep(2 * time.Minute) // longer than a sweep
		waitIdle()
		r.expectPhase("Undeleted", 0)
		r.expectPhase("Added", 1)
		r.expectHolders("pci-0000:03:00.2", "claim ns/claim-u1")
		r.expectFiles("cache", 1)
	})
}

// The scheduler must not allocate a device whose DEL failed. The driver does not offer the device while the
// claim exists or after the DEL was given up. The next process does not offer it either.
func TestDeviceWithFailedDELIsNotOffered(t *testing.T) {
	t.Parallel()
	r, n, p := newRig(t), newNode(t, "mlx5-switchdev"), newPlugins()
	all, fewer := []string{sf4, sf7, "cni", pf, vf0, vf2, vf3}, []string{sf4, sf7, "cni", pf, vf0, vf3}
	client := apiServer(nil)
	r.startOffering(client, n, p)
	waitDevices(t, client, all...)
	p.setHook(failAll)
	r.prepare(ownClaim("u1", vf2, network(`{"type":"sriov"}`)))
	sb := r.sandbox("s1", "pod")
	says(t, r.runPod(sb), errNoMaster.Error())
	waitDevices(t, client, fewer...)
	r.endPod(sb)
	r.unprepare("u1")
	difftest.Eventually(t, "it is given up", func() bool { return r.agent.Census().Phases["Undeleted"] == 1 })
	waitDevices(t, client, fewer...)
	next := apiServer(nil)
	r.startOffering(next, n, p)
	waitDevices(t, next, fewer...)
	_, err := state.Clear(r.options.StateDir, "u1")
	must(t, err)
	waitDevices(t, next, all...)
}

// The scheduler may have allocated the device before the driver withheld it. Two claims may share a device that
// only the device information shows.
func TestRetriedDELDoesNotTakeDeviceFromAnotherClaim(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		p.setHook(failSandbox("s1"))
		r.giveUpDEL(makeExclusive(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})))
		r.prepare(makeExclusive(r.claimOf("b", "u2", "next", netRequest{"x", "net1", ""})))
		next := r.runSandbox("s2", "next")
		tried := p.calls("DEL s1")
		time.Sleep(5 * time.Hour)
		r.expectCalls("DEL s1", tried)
		r.endPod(next)
		r.unprepare("u2")
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		waitIdle()
		r.expectCalls("DEL s1", tried+1)
		r.expectPhase("Undeleted", 0)
		r.expectNothing()
	})
}

func TestDELThatNeverSucceedsIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		reasons := map[string]int{}
		r.options.Notify = func(n claim.Notice) { reasons[n.Reason]++ }
		agent := r.start()
		p.setHook(failAll)
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
		for n := range 4 { // the kubelet retries with a new sandbox
			sb := r.sandbox(fmt.Sprint("s", n), "pod")
			err := r.runPod(sb)
			says(t, err, "link not found")
			if n > 0 {
				says(t, err, "an earlier sandbox is not detached yet")
			}
			r.endPod(sb)
			time.Sleep(time.Second)
		}
		err := agent.Unprepare(t.Context(), "u1")
		says(t, err, "link not found", "DEL is retried in", "it is given up")
		if took := r.unprepare("u1"); took < time.Minute || took > 3*time.Minute {
			t.Errorf("unprepared after %v", took)
		}
		r.expectCalls("DEL", claim.DefaultDelMaxFailures)
		r.expectPhase("Undeleted", 1)
		difftest.Equal(t, reasons, map[string]int{claim.NoticeUndeleted: 1, claim.NoticeFailed: 1})
		time.Sleep(90 * time.Minute)
		r.expectCalls("DEL", claim.DefaultDelMaxFailures+1)
		r.start() // the next process retries immediately
		waitIdle()
		r.expectCalls("DEL", claim.DefaultDelMaxFailures+2)
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		r.expectPhase("Undeleted", 0)
		r.expectNothing()
	})
}

// Each DEL has its own cache directory, with the lock that waits for plugins of an earlier process.
func TestGivenUpDELsOfOneInterfaceRunOneAtATime(t *testing.T) {
	for _, shared := range []bool{true, false} {
		inBubble(t, func(t *testing.T, r *rig, p *plugins) {
			r.start()
			p.setHook(failDEL(""))
			claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})
			if !shared {
				makeExclusive(claim)
			}
			r.prepare(claim)
			for n := range 2 {
				sb := r.runSandbox(fmt.Sprint("s", n), "pod")
				r.endPod(sb)
				time.Sleep(10 * time.Minute)
			}
			var mu sync.Mutex
			var directories, now, most int
			p.setHook(func(string, string, string) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				now--
				directories = max(directories, len(r.files("cache")))
				return nil
			})
			agent := r.start()
			time.Sleep(2 * time.Minute)
			if got := agent.Census().Phases["Undeleted"]; got != 0 || directories != 2 || most != 1 {
				t.Errorf("%d undeleted, DELs in %d directories, %d at once", got, directories, most)
			}
		})
	}
}

// giveUpDEL attaches a claim to sandbox s1 and waits until its failing DEL is given up.
func (r *rig) giveUpDEL(claim *resourceapi.ResourceClaim) {
	r.t.Helper()
	r.prepare(claim)
	sb := r.sandbox("s1", "pod")
	_ = r.runPod(sb)
	r.endPod(sb)
	r.unprepare(string(claim.UID))
	waitIdle() // calls return before everything is on disk
}

// A process that is killed before the record is written must clear the attachment again.
func TestClearMarkStaysUntilRecordIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		_, err := state.Clear(r.options.StateDir, "u1")
		says(t, err, "u1") // it is not given up yet
		p.setHook(failAll)
		r.giveUpDEL(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
		tried := p.calls("DEL")
		left, err := state.Clear(r.options.StateDir, "u1")
		if err != nil || len(left.Undeleted) != 1 || left.Undeleted[0].Sandbox != "s1" {
			t.Errorf("got %v, %v", left, err)
		}
		record, mark := filepath.Join(r.options.StateDir, "u1.json"), filepath.Join(r.options.StateDir, "u1=s1=net1.cleared")
		must(t, os.Remove(record))
		must(t, os.MkdirAll(filepath.Join(record, "busy"), 0o700))
		time.Sleep(2 * time.Minute)
		_, err = os.Stat(mark)
		must(t, err)
		must(t, os.RemoveAll(record))
		time.Sleep(time.Hour / 4)
		r.expectPhase("Undeleted", 0)
		r.expectCalls("DEL", tried)
		r.expectNothing()
	})
}

// Pods with a macvlan have their master's PCI address in common, but this must not prevent DEL. Only an
// exclusive lease of the device does.
func TestGivenUpDELIsRetriedWhileAnotherPodSharesNIC(t *testing.T) {
	r := newRig(t)
	r.options.UndeletedEvery, r.options.DelMaxFailures, r.options.DelMinRetryTime = 20*time.Millisecond, 2, 10*time.Millisecond
	r.options.Devices.Journal = journalIn(r.dir, "boot1")
	r.start()
	r.prepare(r.claimOf("a", "a", "pod", netRequest{"r", "net1", "info"}), r.claimOf("b", "b", "other", netRequest{"r", "net1", "info"}))
	one := r.runSandbox("s1", "pod")
	r.runSandbox("s2", "other")
	noDel := filepath.Join(r.dir, "no-del")
	must(t, os.WriteFile(noDel, nil, 0o644), r.agent.StopPodSandbox(t.Context(), one))
	r.removeNetns(one)
	difftest.Eventually(t, "given up", func() bool { return r.agent.Census().Phases["Undeleted"] == 1 })
	third := r.sandbox("s3", "third")
	r.recordMultus(multusEntry("third", "s3", r.netns("s3"), exclusiveLease("pci-0000:01:00.2")))
	difftest.Eventually(t, "left alone", func() bool { return strings.Contains(r.record("a").Undeleted[0].DelError, "is held by pod ns/third") })
	must(t, os.Remove(noDel))
	tries := r.record("a").Undeleted[0].Tries
	difftest.Eventually(t, "left alone again", func() bool { return r.record("a").Undeleted[0].Tries > tries+1 })
	r.expectInterfaces("s1_net1", "s2_net1")
	r.removeNetns(third)
	difftest.Eventually(t, "deleted", func() bool { return r.agent.Census().Phases["Undeleted"] == 0 })
	r.expectInterfaces("s2_net1")
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
