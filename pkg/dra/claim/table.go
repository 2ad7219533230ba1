package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/link"
)

// table is the engine's knowledge of claims and sandboxes. Its mutex is never held while a file or the journal
// is read, a plugin runs, or package devices is called.
type table struct {
	netns   func(path string) error
	bootID  string
	queue   workqueue.TypedDelayingInterface[string] // claims that the worker must check
	stopped chan struct{}                            // closed when [Engine.Run] returns

	mu        sync.Mutex
	claims    map[string]*claim
	problems  map[string]state.Problem // unreadable records
	sandboxes map[string]*sandbox      // by ID, as reported by the runtime
	goneNetns map[string]bool          // by path; see observe
	lastOrder int                      // order of the newest sandbox
	lastClaim int                      // order of the newest claim; see [state.Claim]
	synced    bool                     // the runtime has listed all its sandboxes since it connected
	away      error                    // why NRI is not connected; nil = it is, or has not been tried
	changed   chan struct{}            // closed and replaced at each change
	stopping  bool                     // no new ADD may start
}

// do calls f with the mutex held.
func (t *table) do(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// wake queues the claim for its worker. The mutex may be held.
func (t *table) wake(c *claim) { t.queue.Add(c.uid()) }

// wakeNow queues the claim and ends its back-off. It does not end the back-off of DELs. The mutex must be held.
func (t *table) wakeNow(c *claim) {
	c.failure = retry{}
	t.wake(c)
}

// wakePod queues the claims of a pod. The mutex must be held.
func (t *table) wakePod(pod state.Pod) {
	for _, c := range t.claimsOf(pod) {
		t.wake(c)
	}
}

// forget marks the claim as unprepared and queues it. The mutex must be held.
func (t *table) forget(c *claim) {
	c.forgotten = true
	t.wakeNow(c)
}

// notifyWaiters makes all calls of waitFor check their conditions. The mutex must be held.
func (t *table) notifyWaiters() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// waitFor waits until holds returns true or an error. It calls holds with the mutex held.
func (t *table) waitFor(ctx context.Context, holds func() (bool, error)) error {
	for {
		t.mu.Lock()
		done, err := holds()
		changed := t.changed
		t.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-t.stopped:
			return errors.New("the driver has stopped; it continues after its next start")
		case <-ctx.Done():
			return fmt.Errorf("still in progress in the background: %w", context.Cause(ctx))
		}
	}
}

// observe updates goneNetns for claims and pods. Call it before decisions that depend on network namespaces.
func (t *table) observe(pods []state.Pod, claims ...*claim) {
	gone := map[string]bool{}
	t.do(func() {
		for _, c := range claims {
			pods = append(pods, c.pod)
			for _, at := range c.record.Attachments {
				gone[at.Netns] = false
			}
		}
		for _, sb := range t.sandboxes {
			if slices.ContainsFunc(pods, sb.isOf) {
				gone[sb.Netns] = false
			}
		}
	})
	delete(gone, "")
	for path := range gone {
		gone[path] = errors.Is(t.netns(path), link.ErrNoNetns) // after another error it counts as existing
	}
	t.do(func() { maps.Copy(t.goneNetns, gone) })
}

// sweep queues every claim, and drops ended sandboxes that no claim refers to.
func (t *table) sweep() {
	t.mu.Lock()
	defer t.mu.Unlock()
	needed, paths := map[string]bool{}, map[string]bool{}
	for _, c := range t.claims {
		t.wake(c)
		needed[c.stepSandbox] = true
		for _, at := range c.record.Attachments {
			needed[at.Sandbox], paths[at.Netns] = true, true
		}
	}
	for id, sb := range t.sandboxes {
		if sb.ended && !needed[id] {
			delete(t.sandboxes, id)
		}
		paths[sb.Netns] = true
	}
	maps.DeleteFunc(t.goneNetns, func(path string, _ bool) bool { return !paths[path] })
}

// has reports whether a claim is still in the table. The mutex must be held.
func (t *table) has(c *claim) bool { return t.claims[c.uid()] == c }

// find returns a claim and its record, or nil.
func (t *table) find(uid string) (c *claim, record *state.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c = t.claims[uid]; c != nil {
		record = c.record
	}
	return c, record
}

// claimsWhere returns the claims that match. The mutex must be held.
func (t *table) claimsWhere(match func(*claim) bool) (list []*claim) {
	for _, c := range t.claims {
		if match(c) {
			list = append(list, c)
		}
	}
	return list
}

// claimsOf returns the claims of a pod, sorted by name. The mutex must be held.
func (t *table) claimsOf(pod state.Pod) []*claim {
	list := t.claimsWhere(func(c *claim) bool { return c.isFor(pod) })
	slices.SortFunc(list, func(c, d *claim) int { return cmp.Compare(c.ref.Name, d.ref.Name) })
	return list
}

// shareable returns the claims of other pods that the pod of a sandbox may use too. One with the name of a claim of its own
// was deleted before. The mutex must be held.
func (t *table) shareable(sb *sandbox, own []*claim) []*claim {
	return t.claimsWhere(func(c *claim) bool {
		return c.record.Shared && !c.record.Unprepared() && c.ref.Namespace == sb.Pod.Namespace && !named(own, c.ref.Name)
	})
}

// claimsOn returns the claims of which an ADD or DEL for a sandbox runs or is pending. The mutex must be held.
func (t *table) claimsOn(sb *sandbox) []*claim {
	return t.claimsWhere(func(c *claim) bool { return c.stepSandbox == sb.ID || c.hasPendingDel(sb.ID) })
}

// named reports whether one of the claims has a name.
func named(list []*claim, name string) bool {
	return slices.ContainsFunc(list, func(c *claim) bool { return c.ref.Name == name })
}

// PodIn implements [devices.Claims].
func (t *table) PodIn(netns string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, sb := range t.sandboxes {
		if sb.Netns == netns {
			return sb.Pod.Namespace + "/" + sb.Pod.Name
		}
	}
	return ""
}
