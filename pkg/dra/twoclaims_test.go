package dra_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/journal"
)

// Who deletes a pod by force has its device allocated to the next one while the first
// still runs, or its DEL does.
func TestADeviceIsOneClaimsUntilThatHasGivenItBack(t *testing.T) {
	withHardware(t, func(t *testing.T, b *bench) {
		b.attachTo(t, vf2, "vfio-pci")
		first := b.sandbox("s1", "pod")
		b.prepare(onDevice(b.claimOf("b", "u2", "next", want{"x", "net1", ""}), 0, vf2, "vfio-pci"))
		refused := func(sandbox, when string) {
			t.Helper()
			says(t, b.runPod(b.sandbox(sandbox, "next")), vf2, "claim ns/a", "not given it back")
			if n := b.plugins.calls("ADD " + sandbox); n > 0 {
				t.Errorf("%s: %q", when, b.plugins.told)
			}
		}
		refused("s2", "while the first pod runs")
		b.plugins.set(func(command, _, _ string) error {
			if command == "DEL" {
				return errNoMaster
			}
			return nil
		})
		b.endPod(first)
		refused("s3", "while its DEL fails")
		b.plugins.set(nil)
		b.unprepared("u1")
		expectAsCaptured(t, b.kernel)
		next := b.sandbox("s4", "next")
		must(t, b.runPod(next))
		b.endPod(next)
		b.unprepared("u2")
		expectAsCaptured(t, b.kernel)
		b.expectNothing()
	})
}

// abandon has the DEL of claim u1, sandbox s1, given up, which the next one is for then.
func (b *bench) abandon(t *testing.T) {
	t.Helper()
	b.attachTo(t, vf2, "vfio-pci")
	b.plugins.set(func(command, sandbox, _ string) error {
		if command == "DEL" && sandbox == "s1" {
			return errNoMaster
		}
		return nil
	})
	b.endPod(b.sandbox("s1", "pod"))
	b.unprepared("u1")
	if n := b.agent.Census().Phases["Abandoned"]; n != 1 {
		t.Fatalf("got %v", b.agent.Census())
	}
}

// The scheduler may have allocated a device just before it was withheld, so that the hourly
// DEL of the one claim is due in the middle of the ADD of another.
func TestTheHourlyDELAndAnADDOfADeviceExcludeEachOther(t *testing.T) {
	withHardware(t, func(t *testing.T, b *bench) {
		b.stop()
		var pause time.Duration // of the ADD, before it is on record
		b.options.Journal = journal.Open(filepath.Join(b.dir, "journal"), "boot1")
		b.options.Inventory.Locks = func() (map[string]string, error) { time.Sleep(pause); return nil, nil }
		b.agent = b.start()
		b.abandon(t)
		b.prepare(onDevice(b.claimOf("b", "u2", "next", want{"x", "net1", ""}), 0, vf2, "vfio-pci"))

		tried := b.plugins.calls("DEL s1")
		pause = 3 * time.Hour
		_ = b.runPod(b.sandbox("s2", "next")) // the runtime does not wait for so long
		time.Sleep(2 * time.Hour)
		if n := b.plugins.calls("DEL s1"); n != tried {
			t.Errorf("%d DELs in the middle of an ADD", n-tried)
		}
		pause = 0
		b.endPod(b.sandbox("s2", "next"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()

		release := make(chan struct{})
		b.plugins.set(func(command, sandbox, _ string) error {
			if command == "DEL" && sandbox == "s1" {
				<-release
			}
			return nil
		})
		time.Sleep(2 * time.Hour)
		added := b.plugins.calls("ADD")
		says(t, b.runPod(b.sandbox("s3", "next")), vf2, "claim ns/a")
		if n := b.plugins.calls("ADD"); n != added {
			t.Errorf("%d ADDs in the middle of a DEL", n-added)
		}
		close(release)
		b.endPod(b.sandbox("s3", "next"))
		b.unprepared("u2")
		synctest.Wait()
		expectAsCaptured(t, b.kernel)
		b.expectNothing()
	})
}

// What was given up is not taken from a pod that Multus has attached since.
func TestNoHourlyDELTakesADeviceFromMultus(t *testing.T) {
	withHardware(t, func(t *testing.T, b *bench) {
		b.stop()
		b.options.Journal = journal.Open(filepath.Join(b.dir, "journal"), "boot1")
		b.agent = b.start()
		b.abandon(t)
		b.multus(multus("other", "s9", b.netns("s9"), "0000:03:00.4"))
		must(t, b.runPod(b.sandbox("s9", "other")))
		b.plugins.set(nil)
		before, tried := looked(b.kernel), b.plugins.calls("DEL s1")
		time.Sleep(3 * time.Hour)
		if n := b.plugins.calls("DEL s1"); n != tried || before["0000:03:00.4"].Driver != looked(b.kernel)["0000:03:00.4"].Driver {
			t.Errorf("%d DELs, %+v", n-tried, looked(b.kernel)["0000:03:00.4"])
		}
		b.endPod(b.sandbox("s9", "other"))
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		expectAsCaptured(t, b.kernel)
		b.expectNothing()
	})
}
