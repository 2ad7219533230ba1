package claim

import (
	"slices"

	"devinfo-cni.io/pkg/core/state"
)

// goal is the state that events want for a claim.
type goal struct {
	want    want
	sandbox string // sandbox to attach the claim to; "" unless want is attach
}

type want string

const (
	keep   want = "keep"   // no change: it has no sandbox, or one on the host's network, and none has ended
	attach want = "attach" // attach it to a sandbox
	detach want = "detach" // its sandbox has ended, or attaching it failed
	forget want = "forget" // the kubelet has unprepared it
)

// claimView is all that a decision about a claim depends on, except its record.
type claimView struct {
	attachments []attachmentView // by index in the record's Attachments
	undeleted   []attachmentView // by index in the record's Undeleted

	neverSaved  bool // no record is on disk yet
	unsaved     bool // the record on disk differs
	attachError bool // an ADD failed, and the status does not say so yet
	reported    bool // the API server has the current status
	mayRetry    bool // no back-off is running, except of DEL and restore
}

// attachmentView is all that a decision about an attachment depends on, except its record.
type attachmentView struct {
	bare           bool // the claim has no network for the device
	sameSandbox    bool // it was attached to the sandbox of the goal
	sandboxGone    bool // its sandbox certainly no longer exists, though the runtime has reported no end
	netnsGone      bool // its network namespace no longer exists, or the node has rebooted; DEL cannot clean up everything
	gateOpen       bool // its gate is open and current, and its device plugin's file exists
	retryDue       bool // the back-off after its last DEL or restore is over
	triesExhausted bool // DEL or restore failed as often as allowed
	deviceInUse    bool // another attachment has its device
	cleared        bool // an administrator cleared it
}

type action string

const (
	none           action = ""              // nothing to do
	wait           action = "wait"          // wait for a back-off; the claim gets no ADD until then
	doDel          action = "DEL"           // close the gate and run DEL
	doDelAgain     action = "DEL again"     // retry a DEL that was given up
	waitToRetry    action = "wait to retry" // wait until that DEL may be retried; other steps go on
	doRestore      action = "restore"       // restore the device
	doAdd          action = "ADD"           // run ADD and open the gate
	doOpen         action = "open"          // write the metadata and the gate's CDI spec
	doGiveUp       action = "give up"       // move the attachment to the undeleted ones
	doSave         action = "save"          // write the record
	doRecordError  action = "record error"  // write the failure of an ADD to the record
	doForget       action = "forget"        // remove the record
	doClear        action = "clear"         // drop an undeleted attachment
	doMarkReported action = "reported"      // record that the API server has the status
)

type step struct {
	do action
	at []int // indexes in the record's Attachments, or in Undeleted
}

// rule gives the action for an attachment. The first rule that fits applies.
type rule struct {
	phases []state.Phase
	wants  []want
	when   string // in words, for README.md; "" = always
	fits   func(attachmentView) bool
	then   action
}

// rules returns the rules of an attachment. README.md shows them as a table.
func rules() []rule {
	type ph = []state.Phase
	type ws = []want
	all, end := ws{keep, attach, detach, forget}, ws{detach, forget}
	always := func(attachmentView) bool { return true }
	return []rule{
		{ph{state.Prepared}, ws{keep, attach, detach}, "it has no network, and its gate is closed or its device plugin's file is missing", func(a attachmentView) bool { return a.bare && !a.gateOpen }, doOpen},
		{ph{state.Prepared}, all, "it has no network", func(a attachmentView) bool { return a.bare }, none},
		{ph{state.Prepared}, ws{attach}, "", always, doAdd},
		{ph{state.Prepared}, all, "", always, none},
		{ph{state.Adding, state.Added}, end, "", always, doDel},
		{ph{state.Adding}, ws{attach}, "", always, doDel},
		{ph{state.Added}, ws{attach}, "it is attached to another sandbox", func(a attachmentView) bool { return !a.sameSandbox }, doDel},
		{ph{state.Adding, state.Added}, ws{keep}, "its sandbox no longer exists", func(a attachmentView) bool { return a.sandboxGone }, doDel},
		{ph{state.Added}, ws{keep, attach}, "its gate is closed", func(a attachmentView) bool { return !a.gateOpen }, doOpen},
		{ph{state.Adding, state.Added}, ws{keep, attach}, "", always, none},
		{ph{state.Deleting}, all, "DEL failed too often, and its network namespace no longer exists", func(a attachmentView) bool { return a.triesExhausted && a.netnsGone }, doGiveUp},
		{ph{state.Deleting}, all, "DEL failed recently", func(a attachmentView) bool { return !a.retryDue }, wait},
		{ph{state.Deleting}, all, "", always, doDel},
		{ph{state.Restoring}, all, "restoring failed too often, and its network namespace no longer exists", func(a attachmentView) bool { return a.triesExhausted && a.netnsGone }, doGiveUp},
		{ph{state.Restoring}, all, "restoring failed recently", func(a attachmentView) bool { return !a.retryDue }, wait},
		{ph{state.Restoring}, all, "", always, doRestore},
		{ph{state.Undeleted}, all, "an administrator cleared it", func(a attachmentView) bool { return a.cleared }, doClear},
		{ph{state.Undeleted}, all, "DEL was tried recently", func(a attachmentView) bool { return !a.retryDue }, waitToRetry},
		{ph{state.Undeleted}, all, "another attachment uses its device", func(a attachmentView) bool { return a.deviceInUse }, none},
		{ph{state.Undeleted}, all, "", always, doDelAgain},
	}
}

func decide(phase state.Phase, w want, a attachmentView) action {
	for _, r := range rules() {
		if slices.Contains(r.phases, phase) && slices.Contains(r.wants, w) && r.fits(a) {
			return r.then
		}
	}
	return none
}

// reconcile returns the next step of a claim: the first in a list whose condition is true. Only its arguments matter.
func reconcile(record *state.Claim, g goal, now claimView) step {
	needs := map[action][]int{}
	for n := range record.Attachments {
		need := decide(record.Attachments[n].Phase, g.want, now.attachments[n])
		needs[need] = append(needs[need], n)
	}
	for n := range record.Undeleted {
		need := decide(state.Undeleted, g.want, now.undeleted[n])
		needs[need] = append(needs[need], n)
	}
	has := func(do action) bool { return needs[do] != nil }
	for _, next := range order(record, g, now, has) {
		if next.when && next.do == doAdd {
			return step{do: next.do, at: firstAdds(record, needs[doAdd])}
		}
		if next.when {
			return step{do: next.do, at: needs[next.do]}
		}
	}
	if has(wait) || has(doAdd) || has(waitToRetry) || !now.mayRetry {
		return step{do: wait}
	}
	return step{}
}

// firstAdds returns the networks to attach before the late ones, if there are any, because a late network may be slow.
func firstAdds(record *state.Claim, indexes []int) []int {
	early := slices.DeleteFunc(slices.Clone(indexes), func(n int) bool { return record.Attachments[n].Late })
	if len(early) == 0 {
		return indexes
	}
	return early
}

// candidate is a step of a claim and whether it may run now.
type candidate struct {
	do   action
	when bool
}

// order returns the steps of a claim, the most urgent first. README.md shows their order.
func order(record *state.Claim, g goal, now claimView, has func(action) bool) []candidate {
	done := !record.Owes() && g.want == forget || len(record.Attachments)+len(record.Undeleted) == 0
	return []candidate{
		{doGiveUp, now.mayRetry && has(doGiveUp)},
		{doDel, has(doDel)},
		{doRestore, has(doRestore)},
		{doRecordError, now.attachError && g.want != forget},
		{doClear, now.mayRetry && has(doClear) && !now.neverSaved},
		{doSave, now.mayRetry && now.neverSaved}, // no lease or gate may exist before the record is on disk
		{doOpen, now.mayRetry && has(doOpen)},
		{doForget, now.mayRetry && done},
		{doSave, now.mayRetry && now.unsaved},
		{doAdd, now.mayRetry && has(doAdd) && !has(wait)},
		{doMarkReported, now.mayRetry && record.StatusOwed && now.reported && !now.unsaved},
		{doDelAgain, has(doDelAgain)}, // the claim may be waiting for the device that this releases
	}
}
