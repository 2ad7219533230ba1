// Package plan decides the next step of a claim. It has values only: it reads no file, takes no lock and runs nothing, so
// that its rules can be tested for every phase and view. README.md of package claim shows them.
package plan

import (
	"slices"

	"devinfo-cni.io/pkg/core/state"
)

// Goal is the state that events want for a claim.
type Goal struct {
	Want    Want
	Sandbox string // sandbox to attach the claim to; "" unless want is attach
}

// Want is what a [Goal] wants.
type Want string

const (
	Keep   Want = "keep"   // no change: it has no sandbox, or one on the host's network, and none has ended
	Attach Want = "attach" // attach it to a sandbox
	Detach Want = "detach" // its sandbox has ended, or attaching it failed
	Forget Want = "forget" // the kubelet has unprepared it
)

// View is all that a decision about a claim depends on, except its record.
type View struct {
	Attachments []AttachmentView // by index in the record's Attachments
	Undeleted   []AttachmentView // by index in the record's Undeleted

	NeverSaved  bool // no record is on disk yet
	Unsaved     bool // the record on disk differs
	AttachError bool // an ADD failed, and the status does not say so yet
	Reported    bool // the API server has the current status
	MayRetry    bool // no back-off is running, except of DEL and restore
}

// AttachmentView is all that a decision about an attachment depends on, except its record.
type AttachmentView struct {
	Bare           bool // the claim has no network for the device
	SameSandbox    bool // it was attached to the sandbox of the goal
	SandboxGone    bool // its sandbox certainly no longer exists, though the runtime has reported no end
	NetnsGone      bool // the path of its network namespace no longer exists, or the node has rebooted
	GateOpen       bool // its gate is open and current, and its device plugin's file exists
	RetryDue       bool // the back-off after its last DEL or restore is over
	TriesExhausted bool // DEL or restore failed as often as allowed
	DeviceInUse    bool // another attachment has its device
	Cleared        bool // an administrator cleared it
}

// Action is what a [Step] does.
type Action string

const (
	None           Action = ""              // nothing to do
	Wait           Action = "wait"          // wait for a back-off; the claim gets no ADD until then
	DoDel          Action = "DEL"           // close the gate and run DEL
	DoDelAgain     Action = "DEL again"     // retry a DEL that was given up
	WaitToRetry    Action = "wait to retry" // wait until that DEL may be retried; other steps go on
	DoRestore      Action = "restore"       // restore the device
	DoAdd          Action = "ADD"           // run ADD and open the gate
	DoOpen         Action = "open"          // write the metadata and the gate's CDI spec
	DoGiveUp       Action = "give up"       // move the attachment to the undeleted ones
	DoSave         Action = "save"          // write the record
	DoRecordError  Action = "record error"  // write the failure of an ADD to the record
	DoForget       Action = "forget"        // remove the record
	DoClear        Action = "clear"         // drop an undeleted attachment
	DoMarkReported Action = "reported"      // record that the API server has the status
)

// Step is the next step of a claim.
type Step struct {
	Do Action
	At []int // indexes in the record's Attachments, or in Undeleted
}

// rule gives the action for an attachment. The first rule that fits applies.
type rule struct {
	phases []state.Phase
	wants  []Want
	when   string // in words, for README.md; "" = always
	fits   func(AttachmentView) bool
	then   Action
}

// rules returns the rules of an attachment. README.md shows them as a table.
func rules() []rule {
	type ph = []state.Phase
	type ws = []Want
	all, end := ws{Keep, Attach, Detach, Forget}, ws{Detach, Forget}
	always := func(AttachmentView) bool { return true }
	return []rule{
		{ph{state.Prepared}, ws{Keep, Attach, Detach}, "it has no network, and its gate is closed or its device plugin's file is missing", func(a AttachmentView) bool { return a.Bare && !a.GateOpen }, DoOpen},
		{ph{state.Prepared}, all, "it has no network", func(a AttachmentView) bool { return a.Bare }, None},
		{ph{state.Prepared}, ws{Attach}, "", always, DoAdd},
		{ph{state.Prepared}, all, "", always, None},
		{ph{state.Adding, state.Added}, end, "", always, DoDel},
		{ph{state.Adding}, ws{Attach}, "", always, DoDel},
		{ph{state.Added}, ws{Attach}, "it is attached to another sandbox", func(a AttachmentView) bool { return !a.SameSandbox }, DoDel},
		{ph{state.Adding, state.Added}, ws{Keep}, "its sandbox no longer exists", func(a AttachmentView) bool { return a.SandboxGone }, DoDel},
		{ph{state.Added}, ws{Keep, Attach}, "its gate is closed", func(a AttachmentView) bool { return !a.GateOpen }, DoOpen},
		{ph{state.Adding, state.Added}, ws{Keep, Attach}, "", always, None},
		{ph{state.Deleting, state.Restoring}, all, "DEL or restore failed too often, and its network namespace no longer exists", func(a AttachmentView) bool { return a.TriesExhausted && a.NetnsGone }, DoGiveUp},
		{ph{state.Deleting, state.Restoring}, all, "DEL or restore failed recently", func(a AttachmentView) bool { return !a.RetryDue }, Wait},
		{ph{state.Deleting}, all, "", always, DoDel},
		{ph{state.Restoring}, all, "", always, DoRestore},
		{ph{state.Undeleted}, all, "an administrator cleared it", func(a AttachmentView) bool { return a.Cleared }, DoClear},
		{ph{state.Undeleted}, all, "DEL was tried recently", func(a AttachmentView) bool { return !a.RetryDue }, WaitToRetry},
		{ph{state.Undeleted}, all, "another attachment uses its device", func(a AttachmentView) bool { return a.DeviceInUse }, None},
		{ph{state.Undeleted}, all, "", always, DoDelAgain},
	}
}

func decide(phase state.Phase, w Want, a AttachmentView) Action {
	for _, r := range rules() {
		if slices.Contains(r.phases, phase) && slices.Contains(r.wants, w) && r.fits(a) {
			return r.then
		}
	}
	return None
}

// Next returns the next step of a claim: the first in a list whose condition is true. Only its arguments matter.
func Next(record *state.Claim, g Goal, now View) Step {
	needs := map[Action][]int{}
	for n := range record.Attachments {
		need := decide(record.Attachments[n].Phase, g.Want, now.Attachments[n])
		needs[need] = append(needs[need], n)
	}
	for n := range record.Undeleted {
		need := decide(state.Undeleted, g.Want, now.Undeleted[n])
		needs[need] = append(needs[need], n)
	}
	isLate := func(n int) bool { return record.Attachments[n].Late }
	if early := slices.DeleteFunc(slices.Clone(needs[DoAdd]), isLate); len(early) > 0 { // a late network may be slow
		needs[DoAdd] = early
	}
	has := func(do Action) bool { return needs[do] != nil }
	for _, next := range order(record, g, now, has) {
		if next.when {
			return Step{Do: next.do, At: needs[next.do]}
		}
	}
	if has(Wait) || has(WaitToRetry) || !now.MayRetry {
		return Step{Do: Wait}
	}
	return Step{}
}

// candidate is a step of a claim and whether it may run now.
type candidate struct {
	do   Action
	when bool
}

// order returns the steps of a claim, the most urgent first. README.md shows their order.
func order(record *state.Claim, g Goal, now View, has func(Action) bool) []candidate {
	done := !record.Owes() && g.Want == Forget || len(record.Attachments)+len(record.Undeleted) == 0
	return []candidate{
		{DoGiveUp, now.MayRetry && has(DoGiveUp)},
		{DoDel, has(DoDel)},
		{DoRestore, has(DoRestore)},
		{DoRecordError, now.AttachError && g.Want != Forget},
		{DoClear, now.MayRetry && has(DoClear) && !now.NeverSaved},
		{DoSave, now.MayRetry && now.NeverSaved}, // no lease or gate may exist before the record is on disk
		{DoOpen, now.MayRetry && has(DoOpen)},
		{DoForget, now.MayRetry && done},
		{DoSave, now.MayRetry && now.Unsaved},
		{DoAdd, now.MayRetry && has(DoAdd) && !has(Wait)},
		{DoMarkReported, now.MayRetry && record.StatusOwed && now.Reported && !now.Unsaved},
		{DoDelAgain, has(DoDelAgain)}, // the claim may be waiting for the device that this releases
	}
}
