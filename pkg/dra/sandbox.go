package dra

import (
	"errors"
	"slices"

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

	turn   int   // the later the runtime told of it, the higher
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

// know takes note of a sandbox that runs; one that was known keeps its turn. The mutex must be held.
func (a *Agent) know(sb *sandbox) *sandbox {
	if old := a.sandboxes[sb.id]; old != nil {
		sb.turn = old.turn
	}
	if sb.turn == 0 {
		a.turns++
		sb.turn = a.turns
	}
	a.sandboxes[sb.id] = sb
	return sb
}

// isListed says whether a sandbox runs for all that is known. The mutex must be held.
func (a *Agent) isListed(id string) bool {
	sb := a.sandboxes[id]
	return sb != nil && !sb.ended
}

// goalOf is what the events so far want of a claim, and the sandbox that it is to be
// attached to. The mutex must be held.
func (a *Agent) goalOf(c *claim) (goal, *sandbox) {
	switch sb := a.sandboxFor(c); {
	case c.forget:
		return goal{want: forget}, nil
	case c.next != nil:
		return goal{want: replace}, nil
	case sb != nil:
		return goal{attach, sb.id}, sb
	}
	for _, at := range c.record.Attachments {
		if sb := a.sandboxes[at.Sandbox]; sb != nil && sb.ended {
			return goal{want: detach}, nil
		}
	}
	return goal{want: keep}, nil
}

// sandboxFor chooses the sandbox that a claim is to be attached to; nil = there is none.
// A claim has one pod at a time: the one that holds it, for as long as it is reserved
// for that pod, and after that the one whose sandbox is the oldest.
func (a *Agent) sandboxFor(c *claim) *sandbox {
	holds := slices.ContainsFunc(c.pods, func(p state.Pod) bool { return p.UID == c.record.Pod.UID })
	var best *sandbox
	for _, sb := range a.sandboxes {
		if sb.ended || sb.netns == "" || !c.isFor(sb.pod.UID) || sb.pod.UID != c.record.Pod.UID && holds ||
			sb.pod.UID == c.record.Pod.UID && !holds || a.isGone(sb.netns) {
			continue
		}
		// Of one pod's sandboxes the newest is the one that runs.
		if best == nil || (sb.turn > best.turn) == (sb.pod.UID == best.pod.UID) {
			best = sb
		}
	}
	return best
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
