package claim

import (
	"maps"
	"slices"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
)

// addSandbox adds or replaces a sandbox. A sandbox with a known ID keeps its order. The mutex must be held.
func (t *table) addSandbox(sb *sandbox) *sandbox {
	if old := t.sandboxes[sb.ID]; old != nil {
		sb.order, sb.seen = old.order, old.seen
	} else {
		t.lastOrder++
		sb.order, sb.seen = t.lastOrder, time.Now()
	}
	t.sandboxes[sb.ID] = sb
	return sb
}

// isListed reports whether a sandbox is known and has not ended. The mutex must be held.
func (t *table) isListed(id string) bool {
	sb := t.sandboxes[id]
	return sb != nil && !sb.ended
}

// runs reports whether a sandbox has neither ended nor lost its network namespace. The mutex must be held.
func (t *table) runs(sb *sandbox) bool {
	return sb != nil && !sb.ended && !t.goneNetns[sb.Netns]
}

// sandboxOf returns the pod's newest running sandbox, or nil. The mutex must be held.
func (t *table) sandboxOf(pod string) (newest *sandbox) {
	for _, sb := range t.sandboxes {
		if sb.Pod.UID == pod && t.runs(sb) && (newest == nil || sb.order > newest.order) {
			newest = sb
		}
	}
	return newest
}

// recordedNetns returns the network namespace in which a claim is attached to a sandbox; "" = none is. The mutex must be held.
func (t *table) recordedNetns(sandbox string) string {
	for _, c := range t.claims {
		for _, at := range c.record.Attachments {
			if at.Sandbox == sandbox && at.HasNetns(t.bootID) {
				return at.Netns
			}
		}
	}
	return ""
}

// userNamespace reports whether a pod has its own user namespace. known is false if no sandbox of the pod runs.
func (t *table) userNamespace(pod string) (own, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	sb := t.sandboxOf(pod)
	return sb != nil && sb.userns, sb != nil
}

// goalOf returns the goal of a claim. The mutex must be held.
func (t *table) goalOf(c *claim) plan.Goal {
	switch sb := t.sandboxOf(c.pod.UID); {
	case c.forgotten:
		return plan.Goal{Want: plan.Forget}
	case sb != nil && sb.Netns != "":
		return plan.Goal{Want: plan.Attach, Sandbox: sb.ID}
	}
	for _, at := range c.record.Attachments {
		if sb := t.sandboxes[at.Sandbox]; sb != nil && sb.ended {
			return plan.Goal{Want: plan.Detach}
		}
	}
	return plan.Goal{Want: plan.Keep}
}

// failSandbox ends a sandbox that could not be attached. Its waiting call returns why. The mutex must be held.
func (t *table) failSandbox(sb *sandbox, why error) {
	for _, c := range t.claimsOf(sb.Pod) {
		if t.goalOf(c).Sandbox == sb.ID {
			c.attachError = why.Error()
		}
		t.wake(c)
	}
	sb.awaited, sb.ended, sb.err = false, true, why
	t.notifyWaiters()
}

// refusalOf returns why the pod of a sandbox has not got a claim that it uses, or nil. The mutex must be held.
func (t *table) refusalOf(sb *sandbox) error {
	for _, claim := range slices.Sorted(maps.Keys(sb.refused)) {
		if !named(t.claimsOf(sb.Pod), claim) {
			return sb.refused[claim]
		}
	}
	return nil
}

// lacking returns a network that all containers of a sandbox need and that is not attached yet, or nil. The mutex must be
// held.
func (t *table) lacking(sb *sandbox) (*claim, *state.Attachment) {
	for _, c := range t.claimsOf(sb.Pod) {
		for n := range c.record.Attachments {
			at := &c.record.Attachments[n]
			if !at.Bare() && !at.Late && (at.Phase != state.Added || at.Sandbox != sb.ID) {
				return c, at
			}
		}
	}
	return nil, nil
}
