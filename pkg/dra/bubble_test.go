package dra_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
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

// onNode is inBubble with a started agent that offers devices, grants device nodes and leases devices.
func onNode(t *testing.T, test func(t *testing.T, r *rig, p *plugins)) {
	t.Helper()
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.useJournal("mlx5-switchdev", "")
		r.start()
		test(t, r, p)
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
