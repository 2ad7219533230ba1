package dra_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/dra/claim"
)

// inBubble runs a test in a synctest bubble, where time advances when all goroutines wait. The plugins of the
// rig have no processes.
func inBubble(t *testing.T, test func(t *testing.T, r *rig, p *plugins)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, p := newRig(t), newPlugins()
		r.options.Exec, r.plugins = p, p
		r.options.Sweep, r.options.DelMinRetryTime = 0, 0 // the defaults
		r.runtimeWaits = 2 * time.Second
		test(t, r, p)
		if r.agent != nil {
			r.stop()
		}
	})
}

// bubble returns a subtest that runs in a bubble.
func bubble(test func(t *testing.T, r *rig, p *plugins)) func(*testing.T) {
	return func(t *testing.T) { inBubble(t, test) }
}

// waitIdle waits until all goroutines wait. It first sleeps, because a goroutine may be waiting for a lock with
// a timer.
func waitIdle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// runPod starts a sandbox within the runtime's time limit.
func (r *rig) runPod(sb *api.PodSandbox) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.runtimeWaits)
	defer cancel()
	return r.agent.RunPodSandbox(ctx, sb)
}

// endPod stops a sandbox, removes its network namespace, and removes the sandbox.
func (r *rig) endPod(sb *api.PodSandbox) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
	defer cancel()
	noError(r.t, r.agent.StopPodSandbox(ctx, sb))
	r.removeNetns(sb)
	noError(r.t, r.agent.RemovePodSandbox(ctx, sb))
}

// endAndUnprepare ends a pod and its claim, and checks that nothing is left.
func (r *rig) endAndUnprepare(sb *api.PodSandbox, uid string) {
	r.t.Helper()
	r.endPod(sb)
	r.unprepare(uid)
	r.expectNothing()
}

// unprepare repeats Unprepare like the kubelet, and returns how long it took to succeed.
func (r *rig) unprepare(uid string) time.Duration {
	r.t.Helper()
	began := time.Now()
	for time.Since(began) < time.Hour {
		ctx, cancel := context.WithTimeout(r.t.Context(), 45*time.Second)
		err := r.agent.Unprepare(ctx, uid)
		cancel()
		if err == nil {
			return time.Since(began)
		}
		time.Sleep(2 * time.Second)
	}
	r.t.Fatal("the claim cannot be unprepared")
	return 0
}

func TestMissingPluginLeavesNoPendingDELAndNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		p.missing["sriov"] = true
		r.prepareVF0()
		sb := r.sandbox("s1", "pod")
		says(t, r.runPod(sb), "not installed")
		r.expectHolders("pci-0000:03:00.2")
		r.endPod(sb)
		if took := r.unprepare("u1"); took > 0 || p.calls("") > 0 {
			t.Errorf("after %v, with %q", took, p.started)
		}
		r.expectNothing()
	})
}

func TestDELThatNeverSucceedsIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		var told []claim.Notice
		r.options.Notify = func(n claim.Notice) { told = append(told, n) }
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
		reasons := map[string]int{}
		for _, n := range told {
			reasons[n.Reason]++
		}
		if reasons[claim.NoticeUndeleted] != 1 || reasons[claim.NoticeFailed] != 1 {
			t.Errorf("told %v", told)
		}
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
		if took, got := time.Since(began), len(p.interfaceNames()); took != 350*time.Millisecond || got != 5 {
			t.Errorf("after %v: %q", took, p.interfaceNames())
		}
	})
}

func TestLateNetworkDelaysContainersButNotSandbox(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		failures := 2
		p.setHook(func(command, _, ifName string) error {
			if command == "ADD" && ifName == "net2" && failures > 0 {
				failures--
				return errors.New("no lease")
			}
			return nil
		})
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}, netRequest{"y", "net2", "late 10s"}))
		sb := r.sandbox("s1", "pod")
		began := time.Now()
		must(t, r.runPod(sb))
		if took := time.Since(began); took > 0 {
			t.Errorf("the sandbox waited for %v", took)
		}
		must(t, r.createContainer(sb, "u1_x"))
		says(t, r.createContainer(sb, "u1_y"), "unresolvable CDI device")
		time.Sleep(time.Minute)
		if err := r.createContainer(sb, "u1_y"); err != nil || p.calls("ADD s1 net2") != 3 || p.calls("DEL s1 net2") != 2 || p.calls("DEL s1 net1") != 0 {
			t.Errorf("%v, %q", err, p.started)
		}
		r.endAndUnprepare(sb, "u1")
	})
}

func TestPodWithInvisibleNamespaceDoesNotStart(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.start()
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
		sb := r.sandbox("s1", "pod")
		r.removeNetns(sb)
		says(t, r.runPod(sb), "HostToContainer")
		r.unprepare("u1")
		r.expectNothing()
	})
}
