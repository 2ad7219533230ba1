package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

// Prepare records a claim and returns its devices. It rejects claims that cannot be attached. It runs no CNI
// plugin, because the network namespace does not exist yet. If the claim was allocated again with the same UID,
// Prepare first removes its old record. order is from [Engine.Orders]; 0 = the next.
func (e *Engine) Prepare(ctx context.Context, asked *resourceapi.ResourceClaim, order int) (devices []kubeletplugin.Device, err error) {
	defer e.metrics.event("Prepare", time.Now(), &err)
	if err := e.unprepareReallocated(ctx, asked); err != nil {
		return nil, err
	}
	_, former := e.table.find(string(asked.UID))
	own, err := e.Node.Allocated(ctx, asked, former)
	if err != nil {
		return nil, err
	}
	pods, err := cniconfig.Pods(asked)
	if err != nil {
		return nil, err
	}
	networks, refusal := own.Networks(asked, e.Options.Policy)
	var known []*claim
	e.table.do(func() { known = e.table.claimsWhere(func(c *claim) bool { return c.ref.UID == asked.UID }) })
	e.table.observe(pods, known...)
	var c *claim
	if err := e.table.waitFor(ctx, func() (done bool, err error) {
		c, err = e.addClaim(ctx, asked, order, pods, networks, refusal)
		return c != nil, err
	}); err != nil {
		return nil, err
	}
	var record *state.Claim
	err = e.table.waitFor(ctx, func() (bool, error) {
		record = c.record
		switch {
		case !e.table.has(c) && c.failure.err != nil:
			return false, c.failure.err
		case c.runningStep == plan.DoForget:
			return false, nil
		case !e.table.has(c) || c.forgotten:
			return false, c.unpreparedError()
		case c.saved != nil && c.isFor(c.record.Pod) && c.bareGatesOpen():
			return true, nil
		}
		return false, cmp.Or(c.delErrors(), c.failure.err)
	})
	if err != nil {
		return nil, err
	}
	for n := range record.Attachments {
		devices = append(devices, e.gate.Device(record, &record.Attachments[n]))
	}
	return devices, nil
}

// Orders returns the first order for the claims of one call of the kubelet, which are prepared at the same time. Their networks
// are attached in this order, which is that of the pod.
func (e *Engine) Orders(claims int) (first int) {
	e.table.do(func() { first, e.table.lastClaim = e.table.lastClaim+1, e.table.lastClaim+claims })
	return first
}

// unprepareReallocated unprepares the claim if its record differs from the allocation. Calls of the kubelet may overtake
// each other, so it first reads the claim again. If the API server has another allocation, asked is out of date.
func (e *Engine) unprepareReallocated(ctx context.Context, asked *resourceapi.ResourceClaim) error {
	c, record := e.table.find(string(asked.UID))
	if c == nil || record.Unprepared() || isAllocated(record, asked, e.Options.Driver) {
		return nil
	}
	var forgotten bool
	if e.table.do(func() { forgotten = c.forgotten }); !forgotten {
		now, err := e.Options.Read(ctx, c.ref)
		if err != nil {
			return fmt.Errorf("claim %s was prepared with other devices, and the API server cannot confirm the new ones: %w", c.ref, err)
		}
		if now == nil || !equality.Semantic.DeepEqual(now.Status.Allocation, asked.Status.Allocation) {
			return overtaken(c) // before Unprepare can end the other Prepare's claim
		}
		e.table.do(func() { e.table.forget(c) })
	}
	return e.unprepare(ctx, c)
}

// overtaken is the error of a Prepare that another one has overtaken.
func overtaken(c *claim) error {
	return fmt.Errorf("claim %s changed while it was being prepared; the kubelet prepares it again", c.ref)
}

// addClaim adds a claim to the table. It checks the interface names with the mutex held, because another claim of the pod
// may be prepared at the same time. It returns nil while the claim's worker retries a DEL that was given up.
func (e *Engine) addClaim(ctx context.Context, asked *resourceapi.ResourceClaim, order int, pods []state.Pod, networks []state.Attachment, refusal error) (*claim, error) {
	if ctx.Err() != nil { // the kubelet may already have unprepared the claim
		return nil, fmt.Errorf("claim %s/%s: %w", asked.Namespace, asked.Name, context.Cause(ctx))
	}
	if newer, is := errors.AsType[*state.SchemaError](e.table.problems[string(asked.UID)].Err); is {
		return nil, newer
	}
	c := e.table.claims[string(asked.UID)]
	switch {
	case c != nil && c.record.Unprepared() && c.runningStep != plan.None:
		return nil, nil
	case c == nil || c.record.Unprepared():
		if refusal != nil {
			return nil, refusal
		}
		left := c
		c = newClaim(newRecord(asked, e.Options.Driver, pods[0], networks))
		c.record.Order = cmp.Or(order, e.table.lastClaim+1)
		e.table.lastClaim = max(e.table.lastClaim, c.record.Order)
		c.saved = nil
		var err error
		may := slices.IndexFunc(pods, func(pod state.Pod) bool { err = e.table.check(c, pod); return err == nil })
		if may < 0 {
			return nil, err
		}
		c.pod = pods[may] // each other is told why when its sandbox starts
		if left != nil {
			c.record.Undeleted, c.retryUndeletedAt = left.record.Undeleted, left.retryUndeletedAt
		}
		e.table.claims[string(asked.UID)] = c
	case !isAllocated(c.record, asked, e.Options.Driver):
		return nil, overtaken(c)
	}
	e.table.reserve(c, pods)
	c.forgotten = false
	c.known++
	c.gatesOpen = map[int]bool{} // the worker must check the gates again
	e.table.wakeNow(c)
	return c, nil
}

// Unprepare removes the record of a claim, after any pending DEL. It returns nil for an unknown claim.
func (e *Engine) Unprepare(ctx context.Context, uid string) (err error) {
	defer e.metrics.event("Unprepare", time.Now(), &err)
	var c *claim
	var problem state.Problem
	e.table.do(func() {
		if c, problem = e.table.claims[uid], e.table.problems[uid]; c != nil && !c.record.Unprepared() {
			e.table.forget(c)
		}
	})
	if newer, is := errors.AsType[*state.SchemaError](problem.Err); is {
		return newer
	}
	if c != nil {
		return e.unprepare(ctx, c)
	}
	if problem.Err != nil {
		e.Options.Log.Error("unprepared a claim with an unreadable record; its networks may still be attached", "claimUID", uid, "setAside", problem.Aside)
	}
	return e.worker.files.Remove(uid) // removes files that a killed process left while it wrote
}

// unprepare waits until the worker has removed a forgotten claim.
func (e *Engine) unprepare(ctx context.Context, c *claim) error {
	return e.table.waitFor(ctx, func() (bool, error) {
		switch {
		case !e.table.has(c) || c.record.Unprepared():
			return true, nil
		case !c.forgotten:
			return false, fmt.Errorf("claim %s was prepared again", c.ref)
		}
		return false, cmp.Or(c.delErrors(), c.failure.err)
	})
}

// RewriteMetadata writes the device metadata of attached networks again. Call it after Prepare has returned,
// because kubeletplugin then overwrites the metadata. RewriteMetadata does not wait for the steps of the claim, such as
// the ADD of a late network.
func (e *Engine) RewriteMetadata(uid string) error {
	c, record := e.table.find(uid)
	if c == nil {
		return nil
	}
	for n := range record.Attachments {
		if at := &record.Attachments[n]; at.Phase == state.Added {
			if err := e.gate.writeMetadata(c, at.Request); err != nil {
				return c.wrap(at, err)
			}
		}
	}
	return nil
}
