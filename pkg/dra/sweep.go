package dra

import (
	"context"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/dra/state"
)

// Run makes good what is owed, now, whenever the runtime has connected, and every
// [Options.Sweep]; and it sends status. It returns when ctx has ended and so has all
// work: no CNI plugin is left running. The agent is of no use after that.
func (a *Agent) Run(ctx context.Context) {
	var queue sync.WaitGroup
	queue.Go(func() { a.reports.Run(ctx) })
	tick := time.NewTicker(a.Sweep)
	defer tick.Stop()
	for ctx.Err() == nil {
		a.sweep(ctx)
		select {
		case <-tick.C:
		case <-a.wake:
		case <-ctx.Done():
		}
	}
	queue.Wait()
	a.mu.Lock()
	a.ended = true
	a.mu.Unlock()
	a.work.Wait()
}

// Synchronize takes in which sandboxes the runtime has. What follows from it is done by
// Run, for the runtime waits. What is not among them may exist all the same: a runtime
// leaves out those of whose state it is not sure.
func (a *Agent) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	live := make(map[string]sandbox, len(pods))
	for _, pod := range pods {
		live[pod.GetId()] = sandboxOf(pod)
	}
	a.mu.Lock()
	a.live, a.synced = live, true
	a.mu.Unlock()
	a.rouse()
	return nil, nil
}

// rouse makes Run sweep now.
func (a *Agent) rouse() {
	select {
	case a.wake <- struct{}{}:
	default: // it will, already
	}
}

// many is how many claims and pods are worked on at once by a sweep.
const many = 8

// sweep looks at every claim, then at every sandbox that lacks something. It does not
// wait for what takes long.
func (a *Agent) sweep(ctx context.Context) {
	slots := make(chan struct{}, many)
	inSlot := func(f func()) bool {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return false
		}
		return a.begin(func() {
			defer func() { <-slots }()
			f()
		})
	}
	for _, c := range a.all() {
		if !inSlot(func() { a.mend(c) }) {
			return
		}
	}
	for _, sb := range a.lacking() {
		if !inSlot(func() { a.attachLate(ctx, sb) }) {
			return
		}
	}
}

func (a *Agent) all() (list []*claim) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		list = append(list, c)
	}
	return list
}

// mend runs each DEL that is due, opens gates, and queues status. A claim that somebody
// works on is left to them. Prepared is never an error: the sandbox may come yet.
func (a *Agent) mend(c *claim) {
	if !c.tryTake() {
		return
	}
	defer give(c)
	if c.gone {
		return
	}
	if err := a.detachAll([]*claim{c}, a.isDue, ""); err != nil {
		a.Log.Error("detach", "claim", c.ref, "error", err)
	}
	if err := a.reopen(c); err != nil {
		a.Log.Error("CDI spec", "claim", c.ref, "error", err)
	}
	if c.unsaved {
		if err := a.save(c, "saved late"); err != nil {
			a.Log.Error("record", "error", err)
		}
	}
	if c.record.StatusOwed {
		a.report(c)
	}
}

// isDue says whether the DEL that an attachment owes can be run: it was begun, or the
// sandbox is dead. That it is not listed proves nothing while its namespace is there.
func (a *Agent) isDue(at *state.Attachment) bool {
	if at.Phase == state.Deleting || at.BootID != a.BootID {
		return true
	}
	a.mu.Lock()
	_, listed := a.live[at.Sandbox]
	synced := a.synced
	a.mu.Unlock()
	return synced && !listed && a.gone(at.Netns)
}

// lacking are the sandboxes that run though not all of their pod's claims are attached,
// because the agent was away when it should have done it.
func (a *Agent) lacking() (list []sandbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.synced {
		return nil
	}
	wanted := map[string]bool{}
	for _, c := range a.claims {
		for _, phase := range c.phases {
			if c.attempt == nil && (phase == state.Prepared || phase == state.Adding) {
				wanted[string(c.pod)] = true
			}
		}
	}
	for _, sb := range a.live {
		if wanted[string(sb.pod.UID)] && sb.netns != "" && !a.gone(sb.netns) {
			list = append(list, sb)
		}
	}
	return list
}

// attachLate attaches a pod that runs already. Its containers wait at the gate.
func (a *Agent) attachLate(ctx context.Context, sb sandbox) {
	claims := a.claimsOf(sb.pod.UID)
	if a.givenUp(claims) != nil {
		return
	}
	err := a.attach(ctx, sb, claims, &attempt{sandbox: sb.id})
	if err != nil {
		a.Log.Error("pod is not attached", "pod", sb.pod, "sandbox", sb.id, "error", err)
		return
	}
	a.Log.Info("pod was attached late", "pod", sb.pod, "sandbox", sb.id)
}
