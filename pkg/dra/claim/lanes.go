package claim

import (
	"cmp"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/plan"
)

// lane has a limit of its own, so that slow steps of one kind or one network do not delay others. A step may need room in
// several lanes.
type lane struct {
	kind kind
	of   string // names of the networks, or the sandbox
}

type kind int

const (
	lateAdd kind = iota // ADDs that only containers wait for
	del                 // first DEL of an attachment
	delAgain
	ofSandbox // all steps that run plugins for a sandbox
	kinds
)

var widths = [kinds]int{lateAdd: 16, del: 32, delAgain: 4, ofSandbox: 1} // maximum number of running steps

// lanesOf returns the lanes of a step. A step that runs no plugin has none, and one for a waiting sandbox only that of the
// sandbox, so that no DEL of another delays it. The CNI specification allows one operation at a time for a container (1.1,
// section 3), whatever claims its networks are from.
func lanesOf(record *state.Claim, s plan.Step, sb *sandbox) (lanes []lane) {
	k, list := lateAdd, record.Attachments
	switch {
	case s.Do == plan.DoAdd:
	case s.Do == plan.DoDel && slices.ContainsFunc(s.At, func(n int) bool { return list[n].Tries == 0 }):
		k = del
	case s.Do == plan.DoDel:
		k = delAgain
	case s.Do == plan.DoDelAgain:
		k, list = delAgain, record.Undeleted
	default:
		return nil
	}
	var names []string
	for _, n := range s.At {
		l := lane{ofSandbox, list[n].Sandbox}
		if s.Do == plan.DoAdd {
			l.of = sb.ID
		}
		if names = append(names, list[n].Network); !slices.Contains(lanes, l) {
			lanes = append(lanes, l)
		}
	}
	if sb == nil || !sb.awaited {
		slices.Sort(names)
		lanes = append(lanes, lane{k, strings.Join(slices.Compact(names), ",")})
	}
	return lanes
}

// isFull returns the lane that has no room for a step, if any. ADD and DEL also wait for the steps of the sandbox that come
// before them. The mutex must be held.
func (w *worker) isFull(c *claim, s plan.Step, g plan.Goal, lanes []lane) (lane, bool) {
	for _, l := range lanes {
		if w.used[l] >= widths[l.kind] {
			return l, true
		}
	}
	if s.Do != plan.DoAdd && s.Do != plan.DoDel {
		return lane{}, false
	}
	for _, other := range w.table.claims {
		if other != c && w.comesBefore(other, c, s, g) {
			return lanes[0], true // the lane of the sandbox
		}
	}
	return lane{}, false
}

// comesBefore reports whether networks of another claim must be attached or detached before those of s, an ADD or a DEL of
// c. ADDs come in the order in which the kubelet prepared the claims, those of late networks last, and DELs in the reverse
// order. Claims that are backing off do not count. The mutex must be held.
func (w *worker) comesBefore(other, c *claim, s plan.Step, g plan.Goal) bool {
	if other.failure.err != nil || len(other.delBackOff) > 0 {
		return false
	}
	earlier := cmp.Or(cmp.Compare(other.record.Order, c.record.Order), cmp.Compare(other.ref.Name, c.ref.Name)) < 0
	if s.Do == plan.DoAdd {
		late := c.record.Attachments[s.At[0]].Late
		return other.isFor(c.pod) && slices.ContainsFunc(other.record.Attachments, func(at state.Attachment) bool {
			return at.Phase == state.Prepared && !at.Bare() && (at.Late == late && earlier || !at.Late && late)
		}) && w.table.goalOf(other) == g
	}
	sandbox := c.record.Attachments[s.At[0]].Sandbox
	if earlier || !other.hasPendingDel(sandbox) {
		return false
	}
	its := w.table.goalOf(other)
	return its.Want != plan.Keep && its.Sandbox != sandbox
}
