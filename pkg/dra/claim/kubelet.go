package claim

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

// Prepare records a claim, and refuses what cannot be done. It runs no CNI plugin: there is no network namespace
// yet. A claim that is allocated again keeps its UID: its former record ends first.
func (e *Engine) Prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (devices []kubeletplugin.Device, err error) {
	defer e.metrics.event("Prepare", time.Now(), &err)
	if former := e.formerOf(claim); former != nil {
		if err := e.unprepare(ctx, former); err != nil {
			return nil, err
		}
	}
	own, err := e.Node.Allocated(ctx, claim, e.table.recordOf(claim.UID))
	if err != nil {
		return nil, err
	}
	// The worker of a claim that was unprepared may be busy with a DEL that was given up.
	if err := e.table.await(ctx, func() (bool, error) {
		left := e.table.claims[claim.UID]
		return left == nil || !left.record.Left() || left.doing == none, nil
	}); err != nil {
		return nil, err
	}
	c, err := e.admit(ctx, claim, own)
	if err != nil {
		return nil, err
	}
	var record *state.Claim
	err = e.table.await(ctx, func() (bool, error) {
		record = c.record
		switch {
		case c.removed && c.trouble.err != nil:
			return false, c.trouble.err
		case c.doing == doForget: // it cannot be interrupted
			return false, nil
		case c.removed || c.forget:
			return false, c.unprepared()
		case !c.fresh && c.isFor(c.record.Pod) && c.isOpenBare():
			return true, nil
		case c.stuck() != nil:
			return false, c.stuck()
		}
		return false, c.trouble.err
	})
	if err != nil {
		return nil, err
	}
	for n := range record.Attachments {
		devices = append(devices, e.gate.device(record, &record.Attachments[n]))
	}
	return devices, nil
}

// formerOf dismisses a claim whose record has other devices than those that are allocated now; nil = none.
func (e *Engine) formerOf(asked *resourceapi.ResourceClaim) *claim {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	c := e.table.claims[asked.UID]
	if c == nil || c.record.Left() || isBefore(asked.ResourceVersion, c.version) || isAllocated(c.record, asked, e.Driver) {
		return nil
	}
	e.table.dismiss(c)
	return c
}

// admit puts a claim into the table. Another claim of its pod may be prepared at the same time.
func (e *Engine) admit(ctx context.Context, asked *resourceapi.ResourceClaim, own devices.Allocation) (*claim, error) {
	pods, err := cniconfig.Pods(asked)
	if err != nil {
		return nil, err
	}
	networks, refusal := own.Networks(asked, e.Policy)
	e.table.observe(pods, e.table.all(func(c *claim) bool { return c.ref.UID == asked.UID })...)
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	if ctx.Err() != nil { // the kubelet may have unprepared it since
		return nil, fmt.Errorf("claim %s/%s: %w", asked.Namespace, asked.Name, context.Cause(ctx))
	}
	if newer, is := errors.AsType[*state.SchemaError](e.table.problems[asked.UID].Err); is {
		return nil, newer
	}
	c := e.table.claims[asked.UID]
	switch {
	case c != nil && c.record.Left() && c.doing != none:
		return nil, fmt.Errorf("claim %s: the driver is retrying a DEL that it had given up; the kubelet prepares the claim again later", c.ref)
	case c == nil || c.record.Left():
		if refusal != nil {
			return nil, refusal
		}
		if err := cniconfig.Distinct(networks, e.table.takenBy(pods)); err != nil {
			return nil, err
		}
		left := c
		c = known(newRecord(asked, pods[0], networks))
		c.fresh, c.unsaved = true, true
		if left != nil {
			left.removed, c.record.Undeleted, c.redo = true, left.record.Undeleted, left.redo
		}
		e.table.claims[asked.UID] = c
	case isBefore(asked.ResourceVersion, c.version), !isAllocated(c.record, asked, e.Driver):
		return nil, fmt.Errorf("claim %s changed while it was being prepared; the kubelet prepares it again", c.ref)
	}
	e.table.reserve(c, pods)
	c.forget, c.version, c.gatesOpen = false, asked.ResourceVersion, map[int]bool{} // the worker looks again
	e.table.rouse(c)
	return c, nil
}

// Unprepare removes the record of a claim, after any DEL that it owes. An unknown claim is no error.
func (e *Engine) Unprepare(ctx context.Context, uid types.UID) (err error) {
	defer e.metrics.event("Unprepare", time.Now(), &err)
	var c *claim
	var problem state.Problem
	e.table.do(func() {
		if c, problem = e.table.claims[uid], e.table.problems[uid]; c != nil && !c.record.Left() {
			e.table.dismiss(c)
		}
	})
	if newer, is := errors.AsType[*state.SchemaError](problem.Err); is {
		return newer
	}
	if c != nil {
		return e.unprepare(ctx, c)
	}
	if problem.Err != nil {
		e.Log.Error("unprepared a claim with an unreadable record; its networks may still be attached", "claimUID", uid, "setAside", problem.Aside)
	}
	return e.records.files.Remove(uid) // what an agent has left that was killed while it wrote
}

// unprepare waits until a dismissed claim is forgotten.
func (e *Engine) unprepare(ctx context.Context, c *claim) error {
	return e.table.await(ctx, func() (bool, error) {
		switch {
		case c.removed || c.record.Left():
			return true, nil
		case !c.forget:
			return false, fmt.Errorf("claim %s was prepared again", c.ref)
		case c.stuck() != nil:
			return false, c.stuck()
		}
		return false, c.trouble.err
	})
}

// RewriteMetadata writes the device metadata of what is attached again: somebody may have written over it.
func (e *Engine) RewriteMetadata(ctx context.Context, uid types.UID) error {
	c := e.table.find(uid)
	if c == nil || e.gate.metadata == nil {
		return nil
	}
	isAttached := func() bool {
		return slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return at.Phase == state.Added })
	}
	needed := false
	e.table.do(func() {
		if needed = isAttached(); needed {
			c.rewrite = true
			e.table.rouse(c)
		}
	})
	if !needed {
		return nil
	}
	return e.table.await(ctx, func() (bool, error) {
		return !c.rewrite && c.doing != doOpen || c.removed || !isAttached(), c.trouble.err
	})
}
