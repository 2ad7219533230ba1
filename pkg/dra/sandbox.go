package dra

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link"
)

// sandbox is a pod's, as the runtime tells of it.
type sandbox struct {
	id    string
	netns string // path of the network namespace; "" = the host's
	pod   state.Pod
}

func sandboxOf(p *api.PodSandbox) sandbox {
	sb := sandbox{id: p.GetId(), pod: state.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: types.UID(p.GetUid())}}
	for _, ns := range p.GetLinux().GetNamespaces() {
		if ns.GetType() == "network" {
			sb.netns = ns.GetPath()
		}
	}
	return sb
}

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

// RunPodSandbox attaches a pod to the networks of its claims, before any container of
// it is made. An error makes the runtime give the sandbox up; then, or when the time is
// up, all that was attached is detached again.
func (a *Agent) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) (err error) {
	sb := sandboxOf(pod)
	claims := a.claimsOf(sb.pod.UID)
	if len(claims) == 0 {
		a.tell(sb)
		return nil
	}
	defer a.event("RunPodSandbox", time.Now(), &err)
	if sb.netns == "" {
		return fmt.Errorf("pod %s/%s: it has no network namespace of its own, and a claim of driver %s: "+
			"remove spec.hostNetwork or the claim", sb.pod.Namespace, sb.pod.Name, a.Driver)
	}
	ctx, cancel := budget(ctx)
	defer cancel()
	if err := a.attachWithin(ctx, sb, claims); err != nil {
		a.Log.Error("pod is not attached", "pod", sb.pod, "sandbox", sb.id, "error", err)
		return fmt.Errorf("pod %s/%s: %w", sb.pod.Namespace, sb.pod.Name, err)
	}
	a.tell(sb)
	return nil
}

// StopPodSandbox detaches a pod. It returns no error, for the runtime could do nothing
// about one: what fails is done again in the background.
func (a *Agent) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return a.leave(ctx, "StopPodSandbox", sandboxOf(pod))
}

// RemovePodSandbox is StopPodSandbox, should that have been missed.
func (a *Agent) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return a.leave(ctx, "RemovePodSandbox", sandboxOf(pod))
}

func (a *Agent) leave(ctx context.Context, event string, sb sandbox) error {
	a.mu.Lock()
	delete(a.live, sb.id)
	a.mu.Unlock()
	claims := a.claimsOf(sb.pod.UID)
	if len(claims) == 0 {
		return nil
	}
	var err error
	defer a.event(event, time.Now(), &err)
	if a.givenUp(claims) != nil { // the attempt's own worker detaches what it has attached
		return nil
	}
	ctx, cancel := budget(ctx)
	defer cancel()
	err = a.outlast(ctx, func() error {
		if err := take(context.Background(), claims...); err != nil {
			return err
		}
		defer give(claims...)
		return a.detachAll(claims, func(at *state.Attachment) bool { return at.Sandbox == sb.id }, "")
	})
	if err != nil {
		a.Log.Error("pod is not detached yet", "pod", sb.pod, "sandbox", sb.id, "error", err)
	}
	return nil
}

// tell takes note of a sandbox that runs.
func (a *Agent) tell(sb sandbox) {
	a.mu.Lock()
	a.live[sb.id] = sb
	a.mu.Unlock()
}

// attempt is one try to attach a pod. Either its worker commits it or its caller gives
// it up, whoever is first.
type attempt struct {
	sandbox string
	end     atomic.Int32
}

const committed, abandoned = 1, 2

func (t *attempt) commit() bool    { return t.end.CompareAndSwap(0, committed) }
func (t *attempt) abandon() bool   { return t.end.CompareAndSwap(0, abandoned) }
func (t *attempt) isGivenUp() bool { return t.end.Load() == abandoned }

// givenUp is an attempt that goes on for any of the claims though nobody waits for it any
// more; nil = none.
func (a *Agent) givenUp(claims []*claim) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range claims {
		if c.attempt != nil && c.attempt.isGivenUp() {
			return c.attempt
		}
	}
	return nil
}

// attachWithin is attach for as long as ctx lasts. After that the work goes on, and is
// undone at its end: a CNI plugin is not killed in the middle of what it does.
func (a *Agent) attachWithin(ctx context.Context, sb sandbox, claims []*claim) error {
	if t := a.givenUp(claims); t != nil {
		return fmt.Errorf("the CNI plugins of sandbox %s, which was given up, have not ended yet", t.sandbox)
	}
	try := &attempt{sandbox: sb.id}
	began := time.Now()
	done := make(chan error, 1)
	begun := a.begin(func() {
		err := a.attach(ctx, sb, claims, try)
		if try.isGivenUp() {
			a.Log.Warn("the CNI plugins have ended, too late", "pod", sb.pod, "sandbox", sb.id, "took", time.Since(began), "error", err)
		}
		done <- err
	})
	if !begun {
		return errEnded
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if !try.abandon() {
			return <-done // it was committed just now, and ends at once
		}
		return fmt.Errorf("not attached after %v: %w", time.Since(began).Round(100*time.Millisecond), errTooLate)
	}
}

var errTooLate = errors.New("the CNI plugins take longer than the container runtime waits, and what they did is undone: " +
	"find out why, or raise plugin_request_timeout in the NRI settings of the runtime")

// gone says whether a network namespace is; what cannot be found out is taken for there.
func (a *Agent) gone(netns string) bool { return errors.Is(a.Netns(netns), link.ErrNoNetns) }
