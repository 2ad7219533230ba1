package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link"
)

// table holds what the engine knows of claims and sandboxes. Its mutex is never held while a file is read, the
// journal is asked, a plugin runs, or package devices is called.
type table struct {
	netns   func(path string) error
	bootID  string
	queue   workqueue.TypedDelayingInterface[types.UID] // claims to look at
	backOff workqueue.TypedRateLimiter[types.UID]       // of claims, after any failure but a DEL's
	stopped chan struct{}                               // closed at the end of [Engine.Run]

	mu        sync.Mutex
	claims    map[types.UID]*claim
	problems  map[types.UID]state.Problem // claims whose record is unreadable
	sandboxes map[string]*sandbox         // by ID: those that the runtime has told of
	goneNetns map[string]bool             // by path: network namespaces that do not exist, see observe
	lastOrder int                         // of the newest sandbox
	connected bool                        // the runtime is connected
	synced    bool                        // the runtime has told of all sandboxes that it has
	changed   chan struct{}               // closed, and replaced, when anything changes
	stopping  bool                        // no ADD is begun any more
}

func newTable(netns func(string) error, bootID string) *table {
	return &table{
		netns: netns, bootID: bootID,
		queue:   workqueue.NewTypedDelayingQueue[types.UID](),
		backOff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](time.Second, time.Minute),
		stopped: make(chan struct{}), changed: make(chan struct{}),
		claims: map[types.UID]*claim{}, problems: map[types.UID]state.Problem{}, sandboxes: map[string]*sandbox{}, goneNetns: map[string]bool{},
	}
}

// do calls f with the mutex held.
func (t *table) do(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// wake has the claim looked at. The mutex may be held.
func (t *table) wake(c *claim) { t.queue.Add(c.ref.UID) }

// wakeNow wakes a claim, and ends its back-off, but not those of DELs. The mutex must be held.
func (t *table) wakeNow(c *claim) {
	c.failure = retry{}
	t.backOff.Forget(c.ref.UID)
	t.wake(c)
}

// forget has a claim forgotten. The mutex must be held.
func (t *table) forget(c *claim) {
	c.forgotten = true
	t.wakeNow(c)
}

// notifyWaiters tells those who wait that something has changed. The mutex must be held.
func (t *table) notifyWaiters() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// waitFor waits until holds, which is called with the mutex held, returns true or an error.
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

// observe notes which network namespaces of claims and pods exist. Call it before decisions that depend on them.
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
		gone[path] = isGone(t.netns, path)
	}
	t.do(func() { maps.Copy(t.goneNetns, gone) })
}

// isGone reports whether a network namespace does not exist; in doubt it does.
func isGone(netns func(string) error, path string) bool {
	return errors.Is(netns(path), link.ErrNoNetns)
}

// sweep wakes every claim, and forgets sandboxes that no claim remembers.
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

func (t *table) find(uid types.UID) (c *claim) {
	t.do(func() { c = t.claims[uid] })
	return c
}

// claimsWhere returns the claims for which is reports true. The mutex is held while it is called.
func (t *table) claimsWhere(is func(*claim) bool) (list []*claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.claims {
		if is(c) {
			list = append(list, c)
		}
	}
	return list
}

func (t *table) recordOf(uid types.UID) *state.Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.claims[uid]; c != nil {
		return c.record
	}
	return nil
}

// claimsOf returns the claims of a pod, sorted by name. The mutex must be held.
func (t *table) claimsOf(pod state.Pod) (list []*claim) {
	for _, c := range t.claims {
		if c.isFor(pod) {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(c, d *claim) int { return cmp.Compare(c.ref.Name, d.ref.Name) })
	return list
}

// usedIfNames returns the interface names that claims have in any of the pods. The mutex must be held.
func (t *table) usedIfNames(pods []state.Pod) map[string]string {
	taken := map[string]string{}
	for _, c := range t.claims {
		if slices.ContainsFunc(pods, c.isFor) {
			for _, at := range c.record.Attachments {
				taken[at.IfName] = "claim " + c.name()
			}
		}
	}
	return taken
}

// Holders implements [devices.Claims].
func (t *table) Holders() (list []devices.Holder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for uid, c := range t.claims {
		for _, at := range slices.Concat(c.record.Attachments, c.record.Undeleted) {
			list = append(list, devices.Holder{Claim: uid, Attachment: &at})
		}
	}
	return list
}

// OnRecord implements [devices.Claims].
func (t *table) OnRecord(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, unreadable := t.problems[uid]
	return unreadable || t.claims[uid] != nil
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

// Sandbox is a pod's sandbox, as the container runtime describes it.
type Sandbox struct {
	ID    string
	Netns string // path of the network namespace; "" = the host's
	Pod   state.Pod

	UserNamespace bool // the pod has another one than the host: hostUsers: false
}

// sandbox is a sandbox with the notes of the engine, which the mutex of the table guards.
type sandbox struct {
	Sandbox
	order   int   // higher for newer sandboxes
	awaited bool  // the runtime waits for it to be attached
	ended   bool  // it was stopped, or given up
	err     error // why it was given up
}

// isOf reports whether the sandbox is a pod's.
func (sb *sandbox) isOf(pod state.Pod) bool { return sb.Pod.UID == pod.UID }

// addSandbox puts a sandbox into the table. It keeps the order of one with the same ID. The mutex must be held.
func (t *table) addSandbox(sb *sandbox) *sandbox {
	if old := t.sandboxes[sb.ID]; old != nil {
		sb.order = old.order
	}
	if sb.order == 0 {
		t.lastOrder++
		sb.order = t.lastOrder
	}
	t.sandboxes[sb.ID] = sb
	return sb
}

// isListed reports whether a sandbox is known and has not ended. The mutex must be held.
func (t *table) isListed(id string) bool {
	sb := t.sandboxes[id]
	return sb != nil && !sb.ended
}

// runs reports whether a sandbox has neither ended nor lost its network namespace. The mutex must be held.
func (t *table) runs(sb *sandbox) bool {
	return sb != nil && !sb.ended && (sb.Netns == "" || !t.goneNetns[sb.Netns])
}

// sandboxOf returns the newest sandbox of a pod that runs; nil = none. The mutex must be held.
func (t *table) sandboxOf(pod types.UID) (newest *sandbox) {
	for _, sb := range t.sandboxes {
		if sb.Pod.UID == pod && t.runs(sb) && (newest == nil || sb.order > newest.order) {
			newest = sb
		}
	}
	return newest
}

// userNamespace reports whether a pod has a user namespace of its own, as far as its sandbox is known.
func (t *table) userNamespace(pod types.UID) (own, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sb := t.sandboxOf(pod)
	return sb != nil && sb.UserNamespace, sb != nil
}

// goalOf returns what events want of a claim, and the sandbox to attach it to. The mutex must be held.
func (t *table) goalOf(c *claim) (goal, *sandbox) {
	switch sb := t.sandboxOf(c.pod.UID); {
	case c.forgotten:
		return goal{want: forget}, nil
	case sb != nil && sb.Netns != "":
		return goal{attach, sb.ID}, sb
	}
	for _, at := range c.record.Attachments {
		if sb := t.sandboxes[at.Sandbox]; sb != nil && sb.ended {
			return goal{want: detach}, nil
		}
	}
	return goal{want: keep}, nil
}

// failSandbox ends a sandbox that cannot be attached, and the wait for it. The mutex must be held.
func (t *table) failSandbox(sb *sandbox, why error) {
	for _, c := range t.claimsOf(sb.Pod) {
		if _, its := t.goalOf(c); its == sb {
			c.attachError = why.Error()
		}
		t.wake(c)
	}
	sb.awaited, sb.ended, sb.err = false, true, why
	t.notifyWaiters()
}
