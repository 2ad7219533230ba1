package dra_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/test/difftest"
)

func TestHangingDELsDoNotDelayADDs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		p.setHook(func(command, sandbox, _ string) error {
			if command == "DEL" && strings.HasPrefix(sandbox, "hung") {
				time.Sleep(claim.PluginLimit)
				return errors.New("ended")
			}
			return nil
		})
		const hung = 60 // more than the lane has room for
		for n := range hung {
			pod := fmt.Sprint("hung", n)
			r.prepare(r.claimOf("a", pod, pod, netRequest{"x", "net1", ""}))
			sb := r.runSandbox(pod, pod)
			go r.endPod(sb)
		}
		time.Sleep(10 * time.Second)
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), r.claimOf("a", "u2", "late", netRequest{"x", "net1", ""}))
		began := time.Now()
		must(t, r.runPod(r.sandbox("s1", "pod")))
		must(t, r.runPod(r.sandbox("s2", "late")))
		if took := time.Since(began); took > 0 || p.calls("ADD s2") != 1 {
			t.Errorf("after %v: %q", took, p.interfaceNames())
		}
		time.Sleep(time.Hour)
		if agent.Census().Phases["Deleting"]+agent.Census().Phases["Undeleted"] != hung {
			t.Errorf("got %v", agent.Census())
		}
	})
}

func TestNetworksOfPodAreAttachedInParallel(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"v", "net1", "350ms"}, netRequest{"w", "net2", "350ms"}, netRequest{"x", "net3", "350ms"}),
			r.claimOf("b", "u2", "pod", netRequest{"y", "net4", "350ms"}, netRequest{"z", "net5", "350ms"}))
		began := time.Now()
		must(t, r.runPod(r.sandbox("s1", "pod")))
		difftest.Equal(t, time.Since(began), 350*time.Millisecond)
		difftest.Equal(t, len(p.interfaceNames()), 5)
	})
}
