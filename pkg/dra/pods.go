package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/nri"
)

// The events of the container runtime, which waits for the answer to each, with a lock
// that holds up the whole node.

// margin is what a handler leaves of its deadline, to return an error in time: after
// the deadline the runtime starts the pod without us.
const margin = 300 * time.Millisecond

// budget is the time that a handler has.
func budget(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, end.Add(-margin))
}

var errTooLate = errors.New("the CNI plugins take longer than the container runtime waits, and what they did is undone: " +
	"find out why, raise plugin_request_timeout in the NRI settings of the runtime, or have the DeviceClass say attach: Late")

// RunPodSandbox attaches a pod to the networks of its claims, before any container of
// it is made, but for those that are attached late. An error makes the runtime give the
// sandbox up; then, or when the time is up, all that was attached is detached again. A
// CNI plugin that runs is not killed: it is undone when it has ended.
func (a *Agent) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) (err error) {
	began := time.Now()
	ctx, cancel := budget(ctx)
	defer cancel()
	sb, claims, err := a.arrive(ctx, sandboxOf(pod))
	if len(claims) == 0 && err == nil {
		return nil
	}
	defer a.metrics.event("RunPodSandbox", began, &err)
	if err != nil {
		return fmt.Errorf("pod %s/%s: %w", sb.pod.Namespace, sb.pod.Name, err)
	}
	err = a.await(ctx, func() (bool, error) { return a.isAttached(sb, claims) })
	a.mu.Lock()
	switch {
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("not attached after %v: %w", time.Since(began).Round(100*time.Millisecond), errTooLate)
		a.giveUp(sb, err)
	case err != nil && !sb.ended:
		a.giveUp(sb, err)
	}
	sb.waited = false
	a.mu.Unlock()
	if err == nil {
		a.metrics.waits.Observe(time.Since(began).Seconds())
		return nil
	}
	a.settled(ctx, sb, claims)
	reason := NoticeFailed
	if errors.Is(err, errTooLate) {
		reason = NoticeLate
	}
	a.tell(sb.pod, reason, err.Error())
	return fmt.Errorf("pod %s/%s: %w", sb.pod.Namespace, sb.pod.Name, err)
}

// arrive takes note of a sandbox, and says which claims are to be attached to it.
func (a *Agent) arrive(ctx context.Context, sb *sandbox) (*sandbox, []*claim, error) {
	refused := a.ask(ctx, sb)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.sandboxes[sb.id] != sb:
		return sb, nil, errors.New("its sandbox has ended meanwhile")
	case refused != nil:
		a.giveUp(sb, refused)
		return sb, nil, refused
	}
	var list []*claim
	for _, c := range a.claimsOf(sb.pod.UID) {
		needs := slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool { return !at.Bare() })
		switch {
		case sb.netns != "" && a.isGone(sb.netns):
			return sb, nil, fmt.Errorf("its network namespace %s is not visible: if the agent runs in a container, "+
				"mount the directory with mountPropagation: HostToContainer", sb.netns)
		case sb.netns == "" && needs:
			return sb, nil, fmt.Errorf("it has no network namespace of its own, and a claim of driver %s: "+
				"remove spec.hostNetwork, or the network from the claim", a.Driver)
		case c.forget:
			return sb, nil, fmt.Errorf("claim %s: unprepared meanwhile", c.ref)
		case a.sandboxOf(sb.pod.UID) == sb:
			list = append(list, c)
			sb.waited = true
			a.rouse(c)
		}
	}
	return sb, list, nil
}

// isAttached says whether a sandbox has all networks that it waits for, or why it will
// not have them in time. The mutex must be held.
func (a *Agent) isAttached(sb *sandbox, claims []*claim) (bool, error) {
	all := true
	for _, c := range claims {
		lacks := c.gone || c.record.Pod.UID != sb.pod.UID || slices.ContainsFunc(c.record.Attachments, func(at state.Attachment) bool {
			ready := at.Bare() || at.Phase == state.Added && at.Sandbox == sb.id
			return !at.Late && !(ready && a.isOpen(c.record, &at))
		})
		all = all && !lacks
		switch {
		case sb.ended:
			return false, sb.err
		case c.gone || c.forget:
			return false, fmt.Errorf("claim %s: unprepared meanwhile", c.ref)
		case !lacks:
		case c.doing == doAdd && c.of != sb.id && !a.isListed(c.of):
			return false, fmt.Errorf("the CNI plugins of sandbox %s, which was given up, have not ended yet", c.of)
		case c.stuck() != nil:
			return false, fmt.Errorf("detach an earlier sandbox first: %w", c.stuck())
		case c.trouble.err != nil:
			return false, c.trouble.err
		}
	}
	return all, nil
}

// settled waits until nothing is left of a sandbox, or no more can be done about it now.
func (a *Agent) settled(ctx context.Context, sb *sandbox, claims []*claim) {
	_ = a.await(ctx, func() (bool, error) {
		left := slices.ContainsFunc(claims, func(c *claim) bool {
			return !c.gone && c.stuck() == nil && (c.owes(sb.id) || c.doing == doAdd && c.of == sb.id)
		})
		return !left, nil
	})
}

// StopPodSandbox detaches a pod. It returns no error, for the runtime could do nothing
// about one: what fails is done again in the background.
func (a *Agent) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return a.leave(ctx, "StopPodSandbox", pod)
}

// RemovePodSandbox is StopPodSandbox, should that have been missed.
func (a *Agent) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return a.leave(ctx, "RemovePodSandbox", pod)
}

func (a *Agent) leave(ctx context.Context, event string, pod *api.PodSandbox) error {
	began := time.Now()
	sb, claims := a.depart(pod)
	if len(claims) == 0 {
		return nil
	}
	ctx, cancel := budget(ctx)
	defer cancel()
	a.settled(ctx, sb, claims)
	var err error
	a.mu.Lock()
	for _, c := range claims {
		if !c.gone && c.owes(sb.id) {
			err = fmt.Errorf("claim %s: not detached yet", c.ref)
		}
	}
	a.mu.Unlock()
	a.metrics.event(event, began, &err)
	return nil
}

// depart takes note that a sandbox has ended. The claims are those that it is worth to
// wait for: not for an ADD that was given up already.
func (a *Agent) depart(pod *api.PodSandbox) (*sandbox, []*claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	sb := sandboxOf(pod)
	old := a.sandboxes[sb.id]
	var list []*claim
	for _, c := range a.claims {
		if c.owes(sb.id) || c.of == sb.id {
			list = append(list, c)
			a.rouse(c)
		}
	}
	if list == nil {
		delete(a.sandboxes, sb.id)
		return sb, nil
	}
	late := old != nil && old.err != nil
	a.know(sb).ended = true
	if late {
		sb.err = old.err
		list = slices.DeleteFunc(list, func(c *claim) bool { return c.doing == doAdd })
	}
	return sb, list
}

// Synchronize takes in which sandboxes the runtime has. What is not among them may exist
// all the same: a runtime leaves out those of whose state it is not sure.
func (a *Agent) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	a.mu.Lock()
	earlier := a.sandboxes
	a.sandboxes = make(map[string]*sandbox, len(pods))
	for _, pod := range pods {
		sb := sandboxOf(pod)
		if old := earlier[sb.id]; old != nil && !old.ended {
			sb = old
		} else if old != nil {
			sb.order = old.order
		}
		a.know(sb)
	}
	a.synced = true
	a.mu.Unlock()
	a.look()
	return nil, nil
}

// Configure wants the events of sandboxes.
func (a *Agent) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	a.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return api.MustParseEventMask("RunPodSandbox,StopPodSandbox,RemovePodSandbox"), nil
}

// ServeNRI keeps the agent connected to the runtime at an NRI socket, as the plugin of
// that two-digit index, until ctx ends. A runtime that is away is no error.
func (a *Agent) ServeNRI(ctx context.Context, socket, index string) error {
	return nri.Plugin{Handler: a, Name: a.Driver, Index: index, Socket: socket, FailRequests: true, Connected: a.connected, Log: a.Log}.Serve(ctx)
}

// connected also notes that from a disconnection on sandboxes end without our being told.
func (a *Agent) connected(on bool) {
	a.mu.Lock()
	a.up, a.synced = on, a.synced && on
	a.mu.Unlock()
	note(a.metrics.connected, on)
}

// Connected says whether the runtime is.
func (a *Agent) Connected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.up
}
