package dra_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
)

func TestAnADDThatIsSlowerThanTheRuntimeWaitsFailsThePodAndIsUndone(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		var told []string
		r.options.Notify = func(n dra.Notice) { told = append(told, n.Reason) }
		agent := r.start()
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", "10s"}, want{"y", "net2", ""}), r.claimOf("a", "u2", "quick", want{"x", "net1", ""}))
		slow, again := r.sandbox("s1", "pod"), r.sandbox("s2", "pod")
		began := time.Now()
		expect := func(err error, part string, after time.Duration) {
			t.Helper()
			if took := time.Since(began); err == nil || !strings.Contains(err.Error(), part) || took != after {
				t.Errorf("after %v: %v", took, err)
			}
		}
		expect(r.runPod(slow), "raise plugin_request_timeout", 1700*time.Millisecond)
		r.endPod(slow)
		expect(r.runPod(again), "the CNI plugins of sandbox s1, which was given up, have not ended yet", 1700*time.Millisecond)
		must(t, r.runPod(r.sandbox("s3", "quick")))
		expect(errors.New("held up"), "held up", 1700*time.Millisecond)
		time.Sleep(time.Minute)
		if got := p.left(); len(got) != 1 || got[0] != "s3 net1" {
			t.Errorf("there: %q, calls %q", got, p.told)
		}
		if agent.Census().Phases["Prepared"] != 2 || !slices.Equal(told, []string{dra.NoticeLate, dra.NoticeFailed}) {
			t.Errorf("got %v, told %q", agent.Census(), told)
		}
	})
}

func TestTheEndWaitsForThePluginsThatRun(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		r.prepare(r.claimOf("a", "u1", "pod", want{"x", "net1", "1m"}))
		if r.runPod(r.sandbox("s1", "pod")) == nil {
			t.Error("no error")
		}
		began := time.Now()
		r.stop()
		if took := time.Since(began); took < 58*time.Second || took > time.Minute || len(p.left()) > 0 || p.calls("DEL s1 net1") != 1 {
			t.Errorf("it waited for %v: %q", took, p.told)
		}
		if err := agent.Unprepare(t.Context(), "u1"); err == nil || !strings.Contains(err.Error(), "the agent has ended") {
			t.Errorf("got %v", err)
		}
		r.start()
		began = time.Now()
		if r.stop(); time.Since(began) > 0 {
			t.Errorf("an agent that does nothing takes %v to end", time.Since(began))
		}
	})
}
