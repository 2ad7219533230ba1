package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
)

// An event changes what is wanted, wakes the workers of the claims concerned, and waits
// for what comes of it if somebody asks. Those of the container runtime are in pods.go.

const (
	firstRetry   = time.Second // after a failure other than a DEL's, doubled each time
	longestRetry = time.Minute
)

var errEnded = errors.New("the agent has ended: the next one does it")

// wake has the claim looked at. The mutex may be held.
func (a *Agent) wake(c *claim) { a.queue.Add(c.ref.UID) }

// rouse wakes a claim that somebody waits for: but for DELs it is not held back by what
// has failed before. The mutex must be held.
func (a *Agent) rouse(c *claim) {
	c.trouble = retry{}
	a.backOff.Forget(c.ref.UID)
	a.wake(c)
}

// announce tells those who wait that something has changed. The mutex must be held.
func (a *Agent) announce() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// await waits until holds says that it does, or that it cannot. It is called with the
// mutex held.
func (a *Agent) await(ctx context.Context, holds func() (bool, error)) error {
	for {
		a.mu.Lock()
		done, err := holds()
		changed := a.changed
		a.mu.Unlock()
		if done || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-a.over:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("goes on in the background: %w", context.Cause(ctx))
		}
	}
}

// soon tells whoever reads from a channel of one place; that he is told already is fine.
func soon(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// look wakes every claim, and forgets sandboxes that no claim remembers.
func (a *Agent) look() {
	a.mu.Lock()
	defer a.mu.Unlock()
	needed := map[string]bool{}
	for _, c := range a.claims {
		a.wake(c)
		needed[c.of] = true
		for _, at := range c.record.Attachments {
			needed[at.Sandbox] = true
		}
	}
	for id, sb := range a.sandboxes {
		if sb.ended && !needed[id] {
			delete(a.sandboxes, id)
		}
	}
}

// isOpenBare says whether the containers may have what a claim brings no network for.
func (a *Agent) isOpenBare(c *claim) bool {
	return !slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return at.Bare() && !a.isOpen(c.record, &at) })
}

// Prepare notes down what a claim asks for, and refuses what cannot be done: so it does while
// another has a device that is only to be made ready. It runs no CNI plugin: there is no network
// namespace yet. Preparing again gives what is on record, with the metadata of a network that is
// attached by now. A claim that is allocated anew keeps its UID: the former record ends first.
func (a *Agent) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (devices []kubeletplugin.Device, err error) {
	defer a.metrics.event("Prepare", time.Now(), &err)
	if former := a.formerOf(claim); former != nil {
		if err := a.unprepare(ctx, former); err != nil {
			return nil, err
		}
	}
	own, err := a.node.Allocated(ctx, claim, a.recordOf(claim.UID))
	if err != nil {
		return nil, err
	}
	if err := a.await(ctx, func() (bool, error) {
		left := a.claims[claim.UID]
		return left == nil || !left.record.Left() || left.doing == none, nil
	}); err != nil {
		return nil, err
	}
	c, err := a.admit(ctx, claim, own)
	if err != nil {
		return nil, err
	}
	err = a.await(ctx, func() (bool, error) {
		switch {
		case c.gone && c.trouble.err != nil:
			return false, c.trouble.err
		case c.doing == doForget: // which nothing ends
			return false, nil
		case c.gone || c.forget:
			return false, fmt.Errorf("claim %s: unprepared meanwhile", c.ref)
		case !c.fresh && c.isFor(c.record.Pod.UID) && a.isOpenBare(c):
			return true, nil
		case c.stuck() != nil:
			return false, c.stuck()
		}
		return false, c.trouble.err
	})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := range c.record.Attachments {
		devices = append(devices, a.device(c, &c.record.Attachments[n]))
	}
	return devices, nil
}

// recordOf is the record of a claim; nil = it has none.
func (a *Agent) recordOf(uid types.UID) *state.Claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.claims[uid]; c != nil {
		return c.record
	}
	return nil
}

// formerOf is the claim's record that has other devices than those that are allocated now; nil = none.
func (a *Agent) formerOf(asked *resourceapi.ResourceClaim) *claim {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.claims[asked.UID]
	if c == nil || c.record.Left() || isBefore(asked.ResourceVersion, c.version) || isAllocated(c.record, asked, a.Driver) {
		return nil
	}
	c.forget = true
	a.rouse(c)
	return c
}

// admit takes a claim in. What was accepted once stays so. Interface names are checked and taken at
// once, for two claims of a pod may be prepared at the same time.
func (a *Agent) admit(ctx context.Context, asked *resourceapi.ResourceClaim, own devices.Allocation) (*claim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ctx.Err() != nil { // the kubelet may have unprepared it since
		return nil, fmt.Errorf("claim %s/%s: %w", asked.Namespace, asked.Name, context.Cause(ctx))
	}
	if newer, is := errors.AsType[*state.SchemaError](a.problems[asked.UID].Err); is {
		return nil, newer
	}
	pods, err := cniconfig.Pods(asked)
	if err != nil {
		return nil, err
	}
	c := a.claims[asked.UID]
	switch {
	case c != nil && c.record.Left() && c.doing != none:
		return nil, fmt.Errorf("claim %s: a DEL that was given up is tried again: prepare the claim again", c.ref)
	case c == nil || c.record.Left():
		networks, err := own.Networks(asked, a.Policy)
		if err != nil {
			return nil, err
		}
		if err := cniconfig.Distinct(networks, a.takenBy(pods)); err != nil {
			return nil, err
		}
		left := c
		c = known(recordOf(asked, pods[0], networks))
		c.fresh, c.unsaved = true, true
		if left != nil {
			left.gone, c.record.Abandoned, c.redo = true, left.record.Abandoned, left.redo
		}
		a.claims[asked.UID] = c
	case isBefore(asked.ResourceVersion, c.version), !isAllocated(c.record, asked, a.Driver):
		return nil, fmt.Errorf("claim %s: it has changed since it was read: prepare it again", c.ref)
	}
	a.reserve(c, pods)
	c.forget, c.version = false, asked.ResourceVersion
	a.rouse(c)
	return c, nil
}

// takenBy are the interface names that other claims have in any of the pods.
func (a *Agent) takenBy(pods []state.Pod) map[string]string {
	taken := map[string]string{}
	for _, c := range a.claims {
		if !slices.ContainsFunc(pods, func(p state.Pod) bool { return c.isFor(p.UID) }) {
			continue
		}
		for _, at := range c.record.Attachments {
			taken[at.IfName] = "claim " + c.name()
		}
	}
	return taken
}

// Unprepare forgets a claim, after any DEL that it owes. An error makes the kubelet try
// again; a claim that is not known is success.
func (a *Agent) Unprepare(ctx context.Context, uid types.UID) (err error) {
	defer a.metrics.event("Unprepare", time.Now(), &err)
	c, err := a.dismiss(uid)
	if c == nil && err == nil {
		return a.state.Remove(uid) // what an agent has left that was killed while it wrote
	}
	if c == nil {
		return err
	}
	return a.unprepare(ctx, c)
}

// unprepare waits until a claim that is to be forgotten is.
func (a *Agent) unprepare(ctx context.Context, c *claim) error {
	return a.await(ctx, func() (bool, error) {
		switch {
		case c.gone || c.record.Left():
			return true, nil
		case !c.forget:
			return false, fmt.Errorf("claim %s: prepared again", c.ref)
		case c.stuck() != nil:
			return false, c.stuck()
		}
		return false, c.trouble.err
	})
}

// dismiss has a claim forgotten; nil = it is not known.
func (a *Agent) dismiss(uid types.UID) (*claim, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	problem := a.problems[uid]
	if newer, is := errors.AsType[*state.SchemaError](problem.Err); is {
		return nil, newer
	}
	c := a.claims[uid]
	if c != nil && c.record.Left() {
		return c, nil
	}
	if c == nil {
		if problem.Err != nil {
			a.Log.Error("a claim is unprepared of which nothing is known: its networks may be left over", "claimUID", uid, "setAside", problem.Aside)
		}
		return nil, nil
	}
	c.forget = true
	a.rouse(c)
	return c, nil
}

// rewriteMetadata writes the device metadata of what is attached: somebody may have
// written over it.
func (a *Agent) rewriteMetadata(ctx context.Context, uid types.UID) error {
	a.mu.Lock()
	c := a.claims[uid]
	attached := func() bool {
		return slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return at.Phase == state.Added })
	}
	needed := c != nil && a.metadata != nil && attached()
	if needed {
		c.rewrite = true
		a.rouse(c)
	}
	a.mu.Unlock()
	if !needed {
		return nil
	}
	return a.await(ctx, func() (bool, error) { return !c.rewrite && c.doing != doOpen || c.gone || !attached(), c.trouble.err })
}
