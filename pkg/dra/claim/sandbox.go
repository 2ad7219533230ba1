package claim

import (
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/state"
)

// Sandbox is a pod's sandbox, as the container runtime tells of it.
type Sandbox struct {
	ID    string
	Netns string // path of the network namespace; "" = the host's
	Pod   state.Pod
}

// sandbox is one with what the engine notes of it, which the mutex of the table guards.
type sandbox struct {
	Sandbox
	order  int   // higher for sandboxes that were told of later
	waited bool  // the runtime waits for it to be attached
	ended  bool  // it was stopped, or given up
	err    error // why it was given up
}

// isOf reports whether the sandbox is a pod's.
func (sb *sandbox) isOf(pod state.Pod) bool { return sb.Pod.UID == pod.UID }

// know takes note of a sandbox that runs; one that was known keeps its order. The mutex must be held.
func (t *table) know(sb *sandbox) *sandbox {
	if old := t.sandboxes[sb.ID]; old != nil {
		sb.order = old.order
	}
	if sb.order == 0 {
		t.order++
		sb.order = t.order
	}
	t.sandboxes[sb.ID] = sb
	return sb
}

// isListed says whether a sandbox runs for all that is known. The mutex must be held.
func (t *table) isListed(id string) bool {
	sb := t.sandboxes[id]
	return sb != nil && !sb.ended
}

// runs reports whether a sandbox runs, for all that is known. The mutex must be held.
func (t *table) runs(sb *sandbox) bool {
	return sb != nil && !sb.ended && (sb.Netns == "" || !t.gone[sb.Netns])
}

// sandboxOf is a pod's sandbox that runs, the newest if there are several; nil = none. The mutex
// must be held.
func (t *table) sandboxOf(pod types.UID) (newest *sandbox) {
	for _, sb := range t.sandboxes {
		if sb.Pod.UID == pod && t.runs(sb) && (newest == nil || sb.order > newest.order) {
			newest = sb
		}
	}
	return newest
}

// goalOf is what the events so far want of a claim, and the sandbox that it is to be
// attached to. The mutex must be held.
func (t *table) goalOf(c *claim) (goal, *sandbox) {
	switch sb := t.sandboxOf(c.pod.UID); {
	case c.forget:
		return goal{want: forget}, nil
	case sb != nil && sb.Netns != "":
		return goal{attach, sb.ID}, sb
	}
	for _, at := range c.record.Attachments {
		if sb := t.sandboxes[at.Sandbox]; sb != nil && sb.ended {
			return goal{want: detach}, nil
		}
	}
	return goal{want: keep}, nil
}

// giveUp ends what a sandbox is waited for. The mutex must be held.
func (t *table) giveUp(sb *sandbox, why error) {
	for _, c := range t.claimsOf(sb.Pod.UID) {
		if _, its := t.goalOf(c); its == sb {
			c.blame = why.Error()
		}
		t.wake(c)
	}
	sb.waited, sb.ended, sb.err = false, true, why
	t.announce()
}
