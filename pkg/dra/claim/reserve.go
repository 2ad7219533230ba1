package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/state"
)

// A claim belongs to one pod (Device Configuration API). Several pods may name a claim that is not made from a
// template. The kubelet prepares it for the first of them only, so the driver reads it when a sandbox starts.

// reservations finds out which pod a claim belongs to.
type reservations struct {
	Options
	table *table
}

// checkClaims reads the claims of other pods that a new sandbox's pod may have. An error refuses the sandbox.
func (r *reservations) checkClaims(ctx context.Context, sb *sandbox) error {
	r.table.do(func() { r.table.addSandbox(sb) })
	others := r.table.claimsWhere(func(c *claim) bool {
		return c.record.Shared && !c.record.Unprepared() && c.ref.Namespace == sb.Pod.Namespace && !c.isFor(sb.Pod)
	})
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond) // the sandbox waits
	defer cancel()
	errs := make([]error, len(others))
	var reads sync.WaitGroup
	for n, c := range others {
		reads.Go(func() { errs[n] = r.checkClaim(ctx, c, sb) })
	}
	reads.Wait()
	return errors.Join(errs...)
}

// checkClaim reads one claim. If that fails, the sandbox goes on: the gates keep the claim's containers
// out of it, and the next sweep reads the claim again.
func (r *reservations) checkClaim(ctx context.Context, c *claim, sb *sandbox) error {
	now, err := r.Read(ctx, c.ref)
	if err != nil {
		r.Log.Warn("cannot read a claim; if it is reserved for this pod, the pod's containers wait", "claim", c.ref, "pod", sb.Pod, "error", err)
	}
	if now == nil {
		return nil
	}
	if pods, err := cniconfig.Pods(now); err != nil || !slices.ContainsFunc(pods, sb.isOf) {
		return nil
	}
	r.table.observe(nil, c)
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	switch {
	case c.removed || c.forgotten:
		return c.unpreparedError()
	case isOlder(now.ResourceVersion, c.resourceVersion): // Prepare was told something newer
	case !isAllocated(c.record, now, r.Driver):
		return fmt.Errorf("claim %s was allocated again after the kubelet prepared it; delete this pod, so that the kubelet prepares the claim again", c.name())
	case !r.table.isInUse(c):
		c.resourceVersion = now.ResourceVersion
		r.table.assign(c, sb.Pod)
	}
	if c.isFor(sb.Pod) {
		return nil
	}
	return fmt.Errorf("claim %s is held by pod %s/%s, and only one pod can hold a claim. This pod starts after that pod has ended. "+
		"To run both, use a ResourceClaimTemplate. A Deployment whose pods share one claim needs strategy Recreate, or maxSurge: 0",
		c.name(), c.pod.Namespace, c.pod.Name)
}

// readIdle reads the claims that no sandbox has. A failure ends it until the next sweep.
func (r *reservations) readIdle(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	r.table.observe(nil, r.table.claimsWhere(func(*claim) bool { return true })...)
	for _, c := range r.table.claimsWhere(r.table.isIdle) {
		now, err := r.Read(limited, c.ref)
		if err != nil {
			if ctx.Err() == nil {
				r.Log.Error("cannot read an idle claim", "claim", c.ref, "error", err)
			}
			return
		}
		r.update(c, now)
	}
}

// update updates a claim that no sandbox has, as it is now; nil = it was deleted.
func (r *reservations) update(c *claim, now *resourceapi.ResourceClaim) {
	var pods []state.Pod
	if now != nil {
		pods, _ = cniconfig.Pods(now)
	}
	r.table.observe(pods, c)
	r.table.mu.Lock()
	defer r.table.mu.Unlock()
	switch {
	case c.removed || c.forgotten || !r.table.isIdle(c) || now != nil && isOlder(now.ResourceVersion, c.resourceVersion):
	case now == nil || !isAllocated(c.record, now, r.Driver):
		r.Log.Warn("claim was deleted or allocated again without Unprepare; unpreparing it now", "claim", c.ref)
		r.table.forget(c)
	case pods != nil:
		c.resourceVersion = now.ResourceVersion
		r.table.reserve(c, pods)
	}
}

// isIdle reports whether no sandbox runs with a claim, for all that is known. The mutex must be held.
func (t *table) isIdle(c *claim) bool {
	return t.synced && !c.record.Unprepared() && t.sandboxOf(c.pod.UID) == nil &&
		!slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return t.runs(t.sandboxes[at.Sandbox]) })
}

// reserve gives a claim that no sandbox has to one of the pods that it is reserved for. The mutex must be held.
func (t *table) reserve(c *claim, pods []state.Pod) {
	running := slices.IndexFunc(pods, func(p state.Pod) bool { return t.sandboxOf(p.UID) != nil })
	switch {
	case t.isInUse(c):
	case running >= 0:
		t.assign(c, pods[running])
	case !slices.ContainsFunc(pods, c.isFor):
		t.assign(c, pods[0])
	}
}

// assign makes a claim a pod's. The mutex must be held.
func (t *table) assign(c *claim, pod state.Pod) {
	if !c.isFor(pod) {
		c.pod, c.unsaved = pod, true
		t.wakeNow(c)
	}
}

// isInUse reports whether a sandbox, listed by the runtime or not, may have a claim. The mutex must be held.
func (t *table) isInUse(c *claim) bool {
	return !t.synced && !c.neverSaved || t.sandboxOf(c.pod.UID) != nil || slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
		if at.Phase != state.Adding && at.Phase != state.Added {
			return false
		}
		if sb := t.sandboxes[at.Sandbox]; sb != nil {
			return t.runs(sb)
		}
		return at.BootID == t.bootID && !t.goneNetns[at.Netns]
	})
}
