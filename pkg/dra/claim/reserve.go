package claim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/cniconfig"
)

// A claim belongs to one pod (Device Configuration API), but pods can share a claim that is not made from a template.
// The kubelet prepares it only for the first. Therefore the driver reads a pod whose sandbox starts while such a claim of
// another pod is prepared in its namespace.

// readLimit is how long a check of the claims of a new sandbox may take. The sandbox does not wait for all of it.
const readLimit = 30 * time.Second

// checkClaims checks the claims of other pods that the pod of a new sandbox may use. An error rejects the sandbox. If the
// API server does not answer, the sandbox stays, because gates keep out the containers that use the claims. The next
// sweep reads the claims again.
func (e *Engine) checkClaims(ctx context.Context, sb *sandbox, others []*claim) error {
	names, err := e.Options.ClaimsOf(ctx, sb.Pod)
	var errs []error
	for _, c := range others {
		if err == nil && slices.Contains(names, c.ref.Name) {
			var why error
			if why, err = e.checkClaim(ctx, c, sb); why != nil {
				errs = append(errs, why)
				e.table.do(func() { sb.refused[c.ref.Name] = why })
			}
		}
	}
	if err != nil {
		e.Options.Log.Warn("cannot ask the API server which claims a pod uses; if one of them was prepared for another pod, the containers that use it wait",
			"pod", sb.Pod, "claims", len(others), "error", err)
	}
	return errors.Join(errs...)
}

// checkClaim checks whether the pod of a new sandbox can take over a claim that it uses. refusal rejects the sandbox. Only
// a pod that can take over costs a second request, which shows whether the claim still has the devices on record.
func (e *Engine) checkClaim(ctx context.Context, c *claim, sb *sandbox) (refusal, err error) {
	e.table.observe(nil, c)
	var inUse bool
	var known int
	e.table.do(func() { inUse, known = e.table.isInUse(c), c.known })
	var now *resourceapi.ResourceClaim
	if !inUse {
		if now, err = e.Options.Read(ctx, c.ref); err != nil {
			return nil, err
		}
		e.table.observe(nil, c)
	}
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	switch {
	case !e.table.has(c) || c.forgotten:
		return c.unpreparedError(), nil
	case inUse || c.known != known || e.table.isInUse(c): // the claim that was read may be out of date
	case now == nil || !isAllocated(c.record, now, e.Options.Driver):
		return fmt.Errorf("claim %s was allocated again after the kubelet prepared it; delete this pod, so that the kubelet prepares the claim again", c.name()), nil
	default:
		c.known++
		if err := e.table.assign(c, sb.Pod); err != nil {
			return err, nil
		}
	}
	if c.isFor(sb.Pod) {
		return nil, nil
	}
	return fmt.Errorf("claim %s is held by pod %s/%s, and only one pod can hold a claim. This pod starts after that pod has ended. "+
		"To run both, use a ResourceClaimTemplate. A Deployment whose pods share one claim needs strategy Recreate, or maxSurge: 0",
		c.name(), c.pod.Namespace, c.pod.Name), nil
}

// readIdle reads and updates the idle claims: see isIdle. It leaves claims after a failed read to the next sweep.
func (e *Engine) readIdle(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var all, idle []*claim
	e.table.do(func() { all = slices.Collect(maps.Values(e.table.claims)) })
	e.table.observe(nil, all...)
	e.table.do(func() { idle = e.table.claimsWhere(e.table.isIdle) })
	for _, c := range idle {
		var known int
		e.table.do(func() { known = c.known })
		now, err := e.Options.Read(limited, c.ref)
		if err != nil {
			if ctx.Err() == nil {
				e.Options.Log.Error("cannot read an idle claim", "claim", c.ref, "error", err)
			}
			return
		}
		var pods []state.Pod
		if now != nil {
			pods, _ = cniconfig.Pods(now)
		}
		e.table.observe(pods, c)
		e.table.do(func() {
			switch {
			case !e.table.has(c) || c.forgotten || !e.table.isIdle(c) || c.known != known: // what was read may be out of date
			case now == nil || !isAllocated(c.record, now, e.Options.Driver):
				e.Options.Log.Warn("claim was deleted or allocated again without Unprepare; unpreparing it now", "claim", c.ref)
				e.table.forget(c)
			case pods != nil:
				c.known++
				e.table.reserve(c, pods)
			}
		})
	}
}
