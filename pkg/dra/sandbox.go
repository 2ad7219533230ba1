package dra

import (
	"errors"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link"
)

// sandbox is a pod's, as the runtime has told of it. id, netns and pod never change; the
// agent's mutex guards the rest.
type sandbox struct {
	id    string
	netns string // path of the network namespace; "" = the host's
	pod   state.Pod

	order  int   // the later the runtime told of it, the higher
	waited bool  // the runtime waits for it to be attached
	ended  bool  // it was stopped, or given up
	err    error // why it was given up
}

func sandboxOf(p *api.PodSandbox) *sandbox {
	sb := &sandbox{id: p.GetId(), pod: state.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: types.UID(p.GetUid())}}
	for _, ns := range p.GetLinux().GetNamespaces() {
		if ns.GetType() == "network" {
			sb.netns = ns.GetPath()
		}
	}
	return sb
}

// isOf reports whether the sandbox is a pod's.
func (sb *sandbox) isOf(pod state.Pod) bool { return sb.pod.UID == pod.UID }

// know takes note of a sandbox that runs; one that was known keeps its order. The mutex must be held.
func (a *Agent) know(sb *sandbox) *sandbox {
	if old := a.sandboxes[sb.id]; old != nil {
		sb.order = old.order
	}
	if sb.order == 0 {
		a.told++
		sb.order = a.told
	}
	a.sandboxes[sb.id] = sb
	return sb
}

// isListed says whether a sandbox runs for all that is known. The mutex must be held.
func (a *Agent) isListed(id string) bool {
	sb := a.sandboxes[id]
	return sb != nil && !sb.ended
}

// runs reports whether a sandbox runs, for all that is known. The mutex must be held.
func (a *Agent) runs(sb *sandbox) bool {
	return sb != nil && !sb.ended && (sb.netns == "" || !a.isGone(sb.netns))
}

// sandboxOf is a pod's sandbox that runs, the newest if there are several; nil = none. The mutex
// must be held.
func (a *Agent) sandboxOf(pod types.UID) (newest *sandbox) {
	for _, sb := range a.sandboxes {
		if sb.pod.UID == pod && a.runs(sb) && (newest == nil || sb.order > newest.order) {
			newest = sb
		}
	}
	return newest
}

// goalOf is what the events so far want of a claim, and the sandbox that it is to be
// attached to. The mutex must be held.
func (a *Agent) goalOf(c *claim) (goal, *sandbox) {
	switch sb := a.sandboxOf(c.pod.UID); {
	case c.forget:
		return goal{want: forget}, nil
	case sb != nil && sb.netns != "":
		return goal{attach, sb.id}, sb
	}
	for _, at := range c.record.Attachments {
		if sb := a.sandboxes[at.Sandbox]; sb != nil && sb.ended {
			return goal{want: detach}, nil
		}
	}
	return goal{want: keep}, nil
}

// giveUp ends what a sandbox is waited for. The mutex must be held.
func (a *Agent) giveUp(sb *sandbox, why error) {
	for _, c := range a.claimsOf(sb.pod.UID) {
		if _, its := a.goalOf(c); its == sb {
			c.blame = why.Error()
		}
		a.wake(c)
	}
	sb.waited, sb.ended, sb.err = false, true, why
	a.announce()
}

// isGone reports whether a network namespace is gone; in doubt it is not.
func (a *Agent) isGone(netns string) bool { return errors.Is(a.Netns(netns), link.ErrNoNetns) }
