package dra_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/state"
)

// recordSnapshots returns the records on disk after each step, by name of the step.
func (r *rig) recordSnapshots() map[string]map[string][]byte {
	all := map[string]map[string][]byte{}
	r.step = func(step string) {
		all[step] = map[string][]byte{}
		for _, name := range r.files("state") {
			if data, err := os.ReadFile(filepath.Join(r.options.StateDir, name)); err == nil {
				all[step][name] = data
			}
		}
	}
	return all
}

// The process may be killed after any step.
func TestNextProcessReadsAndRemovesRecordOfAnyStep(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		all := r.recordSnapshots()
		r.start()
		p.setHook(failAll)
		r.giveUpDEL(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
		p.setHook(nil)
		time.Sleep(3 * time.Hour)
		r.expectPhase("Undeleted", 0)
		r.stop()
		records := maps.Clone(all)
		if len(records["undeleted"]) != 1 || len(records["deleted again"]) != 1 {
			t.Fatalf("records of %d steps", len(records))
		}
		r.step = nil
		for step, files := range records {
			for name, record := range files {
				must(t, os.WriteFile(filepath.Join(r.options.StateDir, name), record, 0o600))
			}
			agent := r.start()
			if problems := agent.Census().Unreadable; problems > 0 {
				t.Errorf("after %q: %d problems", step, problems)
			}
			must(t, agent.Unprepare(t.Context(), "u1"))
			time.Sleep(2 * time.Hour)
			r.stop()
			r.expectNothing()
		}
	})
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

// Undeleted attachments outlive the claim. They also remain if a claim with the same UID is prepared.
func TestClaimPreparedAgainKeepsUndeletedAttachments(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		p.setHook(failSandbox("s1"))
		claim := r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""})
		r.giveUpDEL(claim)
		for _, id := range []string{"s2", "s3"} {
			r.prepare(claim)
			sb := r.runSandbox(id, "pod")
			r.start() // the new process reads the record
			r.expectPhase("Undeleted", 1)
			r.expectPhase("Added", 1)
			r.endPod(sb)
			r.unprepare("u1")
			waitIdle()
			r.expectPhase("Prepared", 0)
		}
		p.setHook(nil)
		time.Sleep(2 * time.Hour)
		r.expectPhase("Undeleted", 0)
		r.expectNothing()
	})
}

// A process that is killed before the record is written must clear the attachment again.
func TestClearMarkStaysUntilRecordIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		if _, err := state.Clear(r.options.StateDir, "u1"); err == nil {
			t.Error("an attachment was cleared before it was given up")
		}
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
		if _, err := os.Stat(mark); err != nil {
			t.Error(err)
		}
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
	r.eventually("given up", func() bool { return r.agent.Census().Phases["Undeleted"] == 1 })
	third := r.sandbox("s3", "third")
	r.recordMultus(multusEntry("third", "s3", r.netns("s3"), exclusiveLease("pci-0000:01:00.2")))
	r.eventually("left alone", func() bool { return strings.Contains(r.record("a").Undeleted[0].DelError, "is held by pod ns/third") })
	must(t, os.Remove(noDel))
	tries := r.record("a").Undeleted[0].Tries
	r.eventually("left alone again", func() bool { return r.record("a").Undeleted[0].Tries > tries+1 })
	r.expectInterfaces("s1_net1", "s2_net1")
	r.removeNetns(third)
	r.eventually("deleted", func() bool { return r.agent.Census().Phases["Undeleted"] == 0 })
	r.expectInterfaces("s2_net1")
}
