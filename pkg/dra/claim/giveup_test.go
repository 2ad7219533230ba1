package claim_test

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
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// makeExclusive allocates the devices of a claim exclusively.
func makeExclusive(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for n := range claim.Status.Allocation.Devices.Results {
		claim.Status.Allocation.Devices.Results[n].ShareID = nil
	}
	return claim
}

// The administrator clears the attachment to the earlier sandbox only.
func TestClearKeepsDeviceAndInterfaceOfLaterSandbox(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		r.Prepare(dratest.DeviceClaim("u1", dratest.VF0, dratest.Network(`{"type":"sriov"}`)))
		r.Plugins.SetHook(dratest.Fail("", "s1"))
		_ = r.RunPod(r.Sandbox("s1", "pod"))
		r.EndPod(r.Sandbox("s1", "pod"))
		time.Sleep(30 * time.Minute)
		difftest.Must(t, r.RunPod(r.Sandbox("s2", "pod")))
		r.ExpectPhase("Undeleted", 1)
		_, err := state.Clear(r.Options.StateDir, "u1")
		difftest.Must(t, err)
		time.Sleep(2 * time.Minute) // longer than a sweep
		dratest.WaitIdle()
		r.ExpectPhase("Undeleted", 0)
		r.ExpectPhase("Added", 1)
		r.ExpectHolders("pci-0000:03:00.2", "claim ns/claim-u1")
		r.ExpectFiles("cache", 1)
	})
}

// The scheduler must not allocate a device whose DEL failed. The driver does not offer the device while the
// claim exists or after the DEL was given up. The next process does not offer it either.
func TestDeviceWithFailedDELIsNotOffered(t *testing.T) {
	t.Parallel()
	r, n := dratest.NewRig(t), dratest.NewNode(t, "mlx5-switchdev")
	p := r.UsePlugins()
	all, fewer := []string{dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF2, dratest.VF3}, []string{dratest.SF4, dratest.SF7, "cni", dratest.PF, dratest.VF0, dratest.VF3}
	client := dratest.APIServer(nil)
	r.StartOffering(client, n)
	dratest.WaitDevices(t, client, all...)
	p.SetHook(dratest.Fail("", ""))
	r.Prepare(dratest.DeviceClaim("u1", dratest.VF2, dratest.Network(`{"type":"sriov"}`)))
	sb := r.Sandbox("s1", "pod")
	difftest.Says(t, r.RunPod(sb), dratest.ErrNoMaster.Error())
	dratest.WaitDevices(t, client, fewer...)
	r.EndPod(sb)
	r.Unprepare("u1")
	difftest.Eventually(t, "it is given up", func() bool { return r.Agent.Census().Phases["Undeleted"] == 1 })
	dratest.WaitDevices(t, client, fewer...)
	next := dratest.APIServer(nil)
	r.StartOffering(next, n)
	dratest.WaitDevices(t, next, fewer...)
	_, err := state.Clear(r.Options.StateDir, "u1")
	difftest.Must(t, err)
	dratest.WaitDevices(t, next, all...)
}

// The scheduler may have allocated the device before the driver withheld it. Two claims may share a device that
// only the device information shows.
func TestRetriedDELDoesNotTakeDeviceFromAnotherClaim(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		r.Start()
		r.Plugins.SetHook(dratest.Fail("", "s1"))
		r.GiveUpDEL(makeExclusive(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""))))
		r.Prepare(makeExclusive(r.ClaimOf("b", "u2", "next", dratest.Net("x", "net1", ""))))
		next := r.RunSandbox("s2", "next")
		tried := r.Plugins.Calls("DEL s1")
		time.Sleep(5 * time.Hour)
		r.ExpectCalls("DEL s1", tried)
		r.EndPod(next)
		r.Unprepare("u2")
		r.Plugins.SetHook(nil)
		time.Sleep(2 * time.Hour)
		dratest.WaitIdle()
		r.ExpectCalls("DEL s1", tried+1)
		r.ExpectPhase("Undeleted", 0)
		r.ExpectNothing()
	})
}

func TestDELThatNeverSucceedsIsGivenUp(t *testing.T) {
	dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
		reasons := map[string]int{}
		r.Options.Notify = func(n claim.Notice) { reasons[n.Reason]++ }
		agent := r.Start()
		var tried []time.Time
		r.Plugins.SetHook(func(command, _, _ string) error {
			if command == "DEL" {
				tried = append(tried, time.Now())
			}
			return dratest.ErrNoMaster
		})
		r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		for n := range 4 { // the kubelet retries with a new sandbox
			sb := r.Sandbox(fmt.Sprint("s", n), "pod")
			err := r.RunPod(sb)
			difftest.Says(t, err, "link not found")
			if n > 0 {
				difftest.Says(t, err, "an earlier sandbox is not detached yet")
			}
			r.EndPod(sb)
			time.Sleep(time.Second)
		}
		err := agent.Unprepare(t.Context(), "u1")
		difftest.Says(t, err, "link not found", "DEL is retried in", "it is given up")
		if took := r.Unprepare("u1"); took < time.Minute || took > 3*time.Minute {
			t.Errorf("unprepared after %v", took)
		}
		var after []float64
		for _, when := range tried {
			after = append(after, when.Sub(tried[0]).Seconds())
		}
		difftest.Same(t, "times of DEL", after, []float64{0, 8, 24, 56, 120}) // DefaultDelMinRetryTime in all
		r.ExpectPhase("Undeleted", 1)
		difftest.Equal(t, reasons, map[string]int{claim.NoticeUndeleted: 1, claim.NoticeFailed: 1})
		time.Sleep(90 * time.Minute)
		r.ExpectCalls("DEL", claim.DefaultDelMaxFailures+1)
		r.Start() // the next process retries immediately
		dratest.WaitIdle()
		r.ExpectCalls("DEL", claim.DefaultDelMaxFailures+2)
		r.Plugins.SetHook(nil)
		time.Sleep(2 * time.Hour)
		r.ExpectPhase("Undeleted", 0)
		r.ExpectNothing()
	})
}

// Each DEL has its own cache directory, with the lock that waits for plugins of an earlier process.
func TestGivenUpDELsOfOneInterfaceRunOneAtATime(t *testing.T) {
	for _, shared := range []bool{true, false} {
		dratest.InBubble(t, func(t *testing.T, r *dratest.Rig) {
			r.Start()
			r.Plugins.SetHook(dratest.Fail("DEL", ""))
			claim := r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", ""))
			if !shared {
				makeExclusive(claim)
			}
			r.Prepare(claim)
			for n := range 2 {
				sb := r.RunSandbox(fmt.Sprint("s", n), "pod")
				r.EndPod(sb)
				time.Sleep(10 * time.Minute)
			}
			var mu sync.Mutex
			var directories, now, most int
			r.Plugins.SetHook(func(string, string, string) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				now--
				directories = max(directories, len(r.Files("cache")))
				return nil
			})
			agent := r.Start()
			time.Sleep(2 * time.Minute)
			if got := agent.Census().Phases["Undeleted"]; got != 0 || directories != 2 || most != 1 {
				t.Errorf("%d undeleted, DELs in %d directories, %d at once", got, directories, most)
			}
		})
	}
}

// A process that is killed before the record is written must clear the attachment again. The leases end before that.
func TestClearMarkStaysUntilRecordIsWritten(t *testing.T) {
	dratest.OnNode(t, func(t *testing.T, r *dratest.Rig) {
		_, err := state.Clear(r.Options.StateDir, "u1")
		difftest.Says(t, err, "u1") // it is not given up yet
		r.Plugins.SetHook(dratest.Fail("", ""))
		r.GiveUpDEL(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
		tried := r.Plugins.Calls("DEL")
		left, err := state.Clear(r.Options.StateDir, "u1")
		if err != nil || len(left.Undeleted) != 1 || left.Undeleted[0].Sandbox != "s1" {
			t.Errorf("got %v, %v", left, err)
		}
		record, mark := filepath.Join(r.Options.StateDir, "u1.json"), filepath.Join(r.Options.StateDir, "u1=s1=net1.cleared")
		difftest.Must(t, os.Remove(record))
		difftest.Must(t, os.MkdirAll(filepath.Join(record, "busy"), 0o700))
		time.Sleep(2 * time.Minute)
		_, err = os.Stat(mark)
		difftest.Must(t, err)
		journal := filepath.Join(r.Dir, "journal")
		difftest.Must(t, os.RemoveAll(record), os.RemoveAll(journal), os.Symlink(journal, journal))
		time.Sleep(time.Hour / 4)
		r.ExpectPhase("Undeleted", 1)
		difftest.Must(t, os.Remove(journal))
		time.Sleep(time.Hour / 4)
		r.ExpectPhase("Undeleted", 0)
		r.ExpectCalls("DEL", tried)
		difftest.Must(t, os.Remove(filepath.Join(r.Dir, "there/s1_net1"))) // the administrator has detached it
		r.ExpectNothing()
	})
}

// Pods with a macvlan have their master's PCI address in common, but this must not prevent DEL. Only an
// exclusive lease of the device does.
func TestGivenUpDELIsRetriedWhileAnotherPodSharesNIC(t *testing.T) {
	r := dratest.NewRig(t)
	r.Options.UndeletedEvery, r.Options.DelMaxFailures, r.Options.DelMinRetryTime = 20*time.Millisecond, 2, 10*time.Millisecond
	r.Options.Devices.Journal = dratest.JournalIn(r.Dir, "boot1")
	r.Start()
	r.Prepare(r.ClaimOf("a", "a", "pod", dratest.Net("r", "net1", "info")), r.ClaimOf("b", "b", "other", dratest.Net("r", "net1", "info")))
	one := r.RunSandbox("s1", "pod")
	r.RunSandbox("s2", "other")
	noDel := filepath.Join(r.Dir, "no-del")
	difftest.Must(t, os.WriteFile(noDel, nil, 0o644), r.Agent.StopPodSandbox(t.Context(), one))
	r.RemoveNetns(one)
	difftest.Eventually(t, "given up", func() bool { return r.Agent.Census().Phases["Undeleted"] == 1 })
	third := r.Sandbox("s3", "third")
	r.RecordMultus(dratest.MultusEntry(third, dratest.ExclusiveLease("pci-0000:01:00.2")))
	difftest.Eventually(t, "left alone", func() bool { return strings.Contains(r.Record("a").Undeleted[0].DelError, "is held by pod ns/third") })
	difftest.Must(t, os.Remove(noDel))
	tries := r.Record("a").Undeleted[0].Tries
	difftest.Eventually(t, "left alone again", func() bool { return r.Record("a").Undeleted[0].Tries > tries+1 })
	difftest.Equal(t, r.Files("there"), []string{"s1_net1", "s2_net1"})
	r.RemoveNetns(third)
	difftest.Eventually(t, "deleted", func() bool { return r.Agent.Census().Phases["Undeleted"] == 0 })
	difftest.Equal(t, r.Files("there"), []string{"s2_net1"})
}

// The DEL of host-device fails if its function was unplugged, although nothing is left to do. A function that
// appears in its place is a new device.
func TestLostDeviceIsOfferedAfterItReturns(t *testing.T) {
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		b.AttachDevice(dratest.VF0, "")
		function, aside := filepath.Join(b.Dir, "kernel/sys/bus/pci/devices/0000:03:00.2"), filepath.Join(b.Dir, "aside")
		difftest.Must(t, os.Rename(function, aside))
		b.Plugins.SetHook(dratest.Fail("", ""))
		b.EndPod(b.Sandbox("s1", "pod"))
		b.Unprepare("u1")
		b.ExpectPhase("Undeleted", 1)
		difftest.Must(t, os.Rename(aside, function))
		difftest.Equal(t, len(b.Agent.Node.Withheld()), 0)
	})
}

// Multus may have given the new device to a pod.
func TestDELOfLostDeviceWaitsWhileMultusHoldsItsReplacement(t *testing.T) {
	t.Parallel()
	dratest.InBubbleWithDevices(t, func(t *testing.T, b *dratest.Rig) {
		sys, err := sysfs.Open(filepath.Join(b.Dir, "kernel/sys"))
		difftest.Must(t, err)
		b.Options.Devices.Lineage = sys.Lineage
		b.Options.Devices.Journal = dratest.JournalIn(b.Dir, "boot1")
		b.Start()
		b.AttachDevice(dratest.VF0, "")
		function, err := filepath.EvalSymlinks(filepath.Join(b.Dir, "kernel/sys/bus/pci/devices/0000:03:00.2"))
		difftest.Must(t, err, os.Rename(function, function+".old"), os.CopyFS(function, os.DirFS(function+".old")))
		b.Plugins.SetHook(dratest.Fail("", ""))
		b.EndPod(b.Sandbox("s1", "pod"))
		b.Unprepare("u1")
		b.Plugins.SetHook(nil)
		line, err := sys.Lineage("0000:03:00.2")
		difftest.Must(t, err)
		entry := dratest.MultusEntry(b.Sandbox("s9", "other"), journal.DeviceLease{ID: line[0].ID, Mode: journal.Exclusive, Object: line[0].Inode})
		b.RecordMultus(entry)
		tried := b.Plugins.Calls("DEL")
		time.Sleep(3 * time.Hour)
		b.ExpectCalls("DEL", tried) // another DEL would reset the other pod's device
		b.ExpectPhase("Undeleted", 1)
		difftest.Must(t, b.Options.Devices.Journal.Forget(entry))
		time.Sleep(2 * time.Hour)
		b.ExpectCalls("DEL", tried+1)
		b.ExpectNothing()
	})
}
