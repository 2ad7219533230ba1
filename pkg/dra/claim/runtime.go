package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
)

func sandboxOf(p *api.PodSandbox) *sandbox {
	namespaces := p.GetLinux().GetNamespaces()
	return &sandbox{
		ID: p.GetId(), Pod: state.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()},
		Netns: nri.Namespace("network", namespaces).GetPath(), userns: nri.Namespace("user", namespaces) != nil, refused: map[string]error{},
	}
}

// RunPodSandbox attaches a pod to the networks of its claims. It runs no plugin and opens no gate itself: it registers the
// sandbox, which changes the goal of the claims to attach, and wakes their workers. A worker opens the gate of each
// network at the end of its ADD (steps.recordAdd). RunPodSandbox waits until the gates are open, an ADD has failed, or the
// budget is used up. In the last case the sandbox stays, its networks are attached beside it, and [Engine.CreateContainer]
// refuses containers until then. If it returns an error, the runtime removes the sandbox, and the engine detaches it when
// its plugins have exited.
func (e *Engine) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) (err error) {
	began := time.Now()
	ctx, end := e.waiting.Begin(ctx)
	defer end()
	sb := sandboxOf(pod)
	claims, err := e.addSandbox(ctx, sb)
	if len(claims) == 0 && err == nil {
		return nil
	}
	defer e.metrics.event("RunPodSandbox", began, &err)
	if err != nil {
		return fmt.Errorf("pod %s/%s: %w", sb.Pod.Namespace, sb.Pod.Name, err)
	}
	err = e.table.waitFor(ctx, func() (bool, error) { return e.isAttached(sb, claims) })
	e.table.do(func() {
		sb.awaited = false
		switch {
		case sb.ended && sb.err != nil: // it has failed since
			err = sb.err
		case err != nil && ctx.Err() != nil && !sb.ended:
			err = nil
		case err != nil && !sb.ended:
			e.table.failSandbox(sb, err)
		}
	})
	if err == nil {
		return nil
	}
	_ = e.waitDetached(ctx, sb)
	e.notices.send(sb.Pod, NoticeFailed, err.Error())
	return fmt.Errorf("pod %s/%s: %w", sb.Pod.Namespace, sb.Pod.Name, err)
}

// CreateContainer returns an error while the sandbox of a new container lacks a network, or a claim that another pod holds: the
// API server may have told of it after the sandbox had started. It does not wait, and changes no container. Containers that
// use the claim of such a network do not come so far, because their CDI device does not exist yet. If the start of the sandbox
// was missed, CreateContainer registers it, and its networks are attached now, unless the pod has another sandbox.
func (e *Engine) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	defer e.metrics.event("CreateContainer", time.Now(), new(error)) // a refusal is no failure of the driver
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	sb := e.table.sandboxes[pod.GetId()]
	missed := sb == nil
	if missed {
		sb = sandboxOf(pod)
		sb.seen = time.Now()
	}
	c, at := e.table.lacking(sb)
	switch refused := e.table.refusalOf(sb); {
	case sb.ended:
		return nil, nil, sb.err
	case refused != nil:
		return nil, nil, fmt.Errorf("pod %s/%s: %w", sb.Pod.Namespace, sb.Pod.Name, refused)
	case c == nil:
		return nil, nil, nil
	case missed && e.table.sandboxOf(sb.Pod.UID) == nil: // otherwise the pod has a newer sandbox, and this container is late
		e.table.addSandbox(sb)
		e.table.wakePod(sb.Pod)
	}
	why := "its ADD has not ended"
	if c.failure.err != nil {
		why = "its last ADD failed: " + c.failure.err.Error()
	}
	return nil, nil, fmt.Errorf("pod %s/%s: network %s (%s, claim %s) is not attached since the sandbox started %v ago: %s",
		sb.Pod.Namespace, sb.Pod.Name, at.Network, at.IfName, c.ref.Name, time.Since(sb.seen).Round(100*time.Millisecond), why)
}

// addSandbox registers a sandbox and returns the claims to attach to it. The claims that it may share with other pods are
// checked while its own are attached, also after ctx has ended.
func (e *Engine) addSandbox(ctx context.Context, sb *sandbox) (list []*claim, err error) {
	var others []*claim
	e.table.do(func() {
		e.table.addSandbox(sb)
		own := e.table.claimsOf(sb.Pod)
		for _, c := range own {
			c.gatesOpen = map[int]bool{} // the worker must check the gates again; from now on it may attach the claim
		}
		others = e.table.shareable(sb, own)
	})
	if list, err = e.ownClaims(sb); err != nil || len(others) == 0 {
		return list, err
	}
	checked := make(chan error, 1)
	go func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
		defer cancel()
		err := e.checkClaims(limited, sb, others)
		checked <- err
		if err != nil && ctx.Err() != nil { // nobody waits for the answer, and CreateContainer keeps out the containers
			e.notices.send(sb.Pod, NoticeFailed, err.Error())
		}
	}()
	select {
	case err = <-checked:
	case <-ctx.Done():
	}
	if err != nil {
		e.table.do(func() { e.table.failSandbox(sb, err) })
		return nil, err
	}
	return e.ownClaims(sb)
}

// ownClaims returns the claims to attach to a sandbox, and wakes their workers.
func (e *Engine) ownClaims(sb *sandbox) (list []*claim, err error) {
	e.table.observe([]state.Pod{sb.Pod})
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	switch {
	case sb.err != nil: // an ADD has failed meanwhile; the sweep may have dropped the sandbox since
		return nil, sb.err
	case e.table.sandboxes[sb.ID] != sb || sb.ended:
		return nil, errors.New("the sandbox ended before it was attached")
	}
	for _, c := range e.table.claimsOf(sb.Pod) {
		needs := slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return !at.Bare() })
		switch {
		case e.table.goneNetns[sb.Netns]:
			return nil, fmt.Errorf("the driver cannot see network namespace %s; if the driver runs in a container, "+
				"mount the directory of the namespace with mountPropagation: HostToContainer", sb.Netns)
		case sb.Netns == "" && needs:
			return nil, fmt.Errorf("it is in the host's network namespace, and its claim of driver %s has a network; "+
				"remove spec.hostNetwork from the pod, or the network from the claim", e.Options.Driver)
		case e.table.sandboxOf(sb.Pod.UID) == sb:
			list = append(list, c)
			if !sb.awaited {
				e.table.wakeNow(c)
			}
		}
	}
	sb.awaited = len(list) > 0
	return list, nil
}

// isAttached reports whether a sandbox has all networks that it waits for, or why it cannot. The mutex must be held.
func (e *Engine) isAttached(sb *sandbox, claims []*claim) (bool, error) {
	all := true
	for _, c := range claims {
		lacks := !sb.isOf(c.record.Pod)
		for n, at := range c.record.Attachments {
			ready := at.Bare() || at.Phase == state.Added && at.Sandbox == sb.ID
			lacks = lacks || !at.Late && !(ready && c.gatesOpen[n])
		}
		all = all && !lacks
		switch {
		case sb.ended:
			return false, sb.err
		case !e.table.has(c) || c.forgotten:
			return false, c.unpreparedError()
		case !lacks:
		case c.runningStep == plan.DoAdd && !e.table.isListed(c.stepSandbox):
			return false, fmt.Errorf("the CNI plugins of an earlier sandbox, %s, are still running", c.stepSandbox)
		case c.delErrors() != nil:
			return false, fmt.Errorf("an earlier sandbox is not detached yet: %w", c.delErrors())
		case c.failure.err != nil:
			return false, c.failure.err
		}
	}
	return all, nil
}

// waitDetached waits until a sandbox is detached, or each claim that is not has a failed DEL that is backing off. It returns
// why a claim is not detached.
func (e *Engine) waitDetached(ctx context.Context, sb *sandbox) error {
	return e.table.waitFor(ctx, func() (bool, error) {
		var failed error
		for _, c := range e.table.claimsOn(sb) {
			if failed = c.delErrors(); failed == nil {
				return false, nil
			}
		}
		return true, failed
	})
}

// StopPodSandbox detaches a pod. It returns nil when the pod is detached or the budget is used up, because the runtime
// cannot act on an error. The worker goes on, and retries a failed DEL, in the background.
func (e *Engine) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return e.endSandbox(ctx, "StopPodSandbox", sandboxOf(pod))
}

// RemovePodSandbox detaches a pod whose StopPodSandbox was missed.
func (e *Engine) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return e.endSandbox(ctx, "RemovePodSandbox", sandboxOf(pod))
}

// endSandbox is [Engine.StopPodSandbox]. event names the call in metrics.
func (e *Engine) endSandbox(ctx context.Context, event string, sb *sandbox) error {
	began, used := time.Now(), false
	e.table.do(func() {
		for _, c := range e.table.claimsOn(sb) {
			used = true
			e.table.wakeNow(c)
		}
		if !used {
			delete(e.table.sandboxes, sb.ID)
			return
		}
		old := e.table.sandboxes[sb.ID]
		if e.table.addSandbox(sb).ended = true; old != nil {
			sb.err = old.err
		}
	})
	if used {
		ctx, end := e.waiting.Begin(ctx)
		defer end()
		err := e.waitDetached(ctx, sb)
		e.metrics.event(event, began, &err)
	}
	return nil
}

// Synchronize replaces the known sandboxes with those that the runtime lists. A sandbox that is not listed may
// still exist, because a runtime omits sandboxes whose state is uncertain. The pods of sandboxes that are new to this process
// are read, because it does not know which claims an earlier one refused them, or did not see them ask for.
func (e *Engine) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	defer e.metrics.event("Synchronize", time.Now(), new(error))
	var added []*sandbox
	e.table.do(func() {
		listed := map[string]*sandbox{}
		runs := func(pod *api.PodSandbox) int { return int(min(pod.GetPid(), 1)) } // CRI-O may not tell the process of either
		former := func(a, b *api.PodSandbox) int { return cmp.Compare(runs(a), runs(b)) }
		for _, pod := range slices.SortedStableFunc(slices.Values(pods), former) { // one that has ended is not the newest of its pod
			old := e.table.sandboxes[pod.GetId()]
			if old == nil || old.ended && old.err != nil { // the runtime has kept one that failed, because it has not got the error
				sb := sandboxOf(pod)
				if sb.Netns == "" { // containerd before 2.3 omits that of an ended one
					sb.Netns = e.table.recordedNetns(sb.ID)
				}
				added = append(added, e.table.addSandbox(sb))
			}
			listed[pod.GetId()] = e.table.sandboxes[pod.GetId()]
		}
		e.table.sandboxes, e.table.synced = listed, true
	})
	e.table.sweep()
	for _, sb := range added {
		go e.checkRunning(sb) // none of them waits for the answer about another
	}
	return nil, nil
}

// checkRunning checks the claims of a sandbox whose start nobody waits for. [Engine.CreateContainer] keeps out its containers
// while it has not got them.
func (e *Engine) checkRunning(sb *sandbox) {
	e.table.observe([]state.Pod{sb.Pod})
	var others []*claim
	e.table.do(func() {
		if e.table.sandboxOf(sb.Pod.UID) == sb {
			others = e.table.shareable(sb, e.table.claimsOf(sb.Pod))
		}
	})
	if len(others) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	if err := e.checkClaims(limited, sb, others); err != nil {
		e.notices.send(sb.Pod, NoticeFailed, err.Error())
	}
}
