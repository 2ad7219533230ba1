package claim

import (
	"slices"

	"devinfo-cni.io/pkg/dra/state"
)

// A goal is what the events so far want to become of a claim.
type goal struct {
	want    want
	sandbox string // to be attached to; only of attach
}

type want string

const (
	keep   want = "keep"   // nothing new: no sandbox is known, and none has ended
	attach want = "attach" // to a sandbox
	detach want = "detach" // its sandbox has ended, or was given up
	forget want = "forget" // it is unprepared
)

// claimView is what the node is like for one claim, at one moment.
type claimView struct {
	attachments []attachmentView // of the record's Attachments
	undeleted   []attachmentView // of its Undeleted ones

	neverSaved  bool // the disk has never got a record
	unsaved     bool // the disk has not got the record as it is
	attachError bool // an ADD has failed of which the status says nothing yet
	reported    bool // the API server has taken the status as it is
	mayRetry    bool // the back-off after a failure other than a DEL's is over
}

// attachmentView is what the node is like for one attachment.
type attachmentView struct {
	bare           bool // the claim brings no network for it
	sameSandbox    bool // it is, or was, of the sandbox that is wanted
	sandboxGone    bool // its sandbox is certainly gone, though nobody said so
	netnsGone      bool // its network namespace is gone, or the boot: DEL cannot do all it should
	gateOpen       bool // its gate is open with all RDMA devices of the pod, its metadata written, and its device plugin's file exists
	retryDue       bool // the back-off after its last DEL, or try to restore, is over
	triesExhausted bool // that has failed as often as it may
	deviceInUse    bool // its device is another attachment's by now
	cleared        bool // an administrator wants it forgotten
}

// An action is what a claim or an attachment needs next. As a step the worker executes
// it; see worker.go.
type action string

const (
	none           action = ""              // it is as it should be
	wait           action = "wait"          // for a back-off; the claim gets no ADD meanwhile
	doDel          action = "DEL"           // close the gate, run DEL
	doDelAgain     action = "DEL again"     // run a DEL again that was given up
	waitToRetry    action = "wait to retry" // the same, when its time comes; nothing waits for it
	doRestore      action = "restore"       // make the device what it was
	doAdd          action = "ADD"           // run ADD, open the gate
	doOpen         action = "open"          // write the metadata and the gate's CDI spec
	doGiveUp       action = "give up"       // owe the DEL, or the device, without holding up the claim
	doSave         action = "save"          // write the record
	doRecordError  action = "record error"  // note why nothing is attached, for the status
	doForget       action = "forget"        // remove the record
	doClear        action = "clear"         // forget a DEL that was given up
	doMarkReported action = "reported"      // note that the API server has the status
)

// A step is one action, and on which attachments.
type step struct {
	do              action
	at              []int // of the record's Attachments, or of its Undeleted ones
	rewriteMetadata bool  // decided when the metadata of all attachments was to be written again
}

// A rule says what an attachment needs. The first one that fits counts.
type rule struct {
	phases []state.Phase
	wants  []want
	when   string // in words, for README.md; "" = always
	fits   func(attachmentView) bool
	then   action
}

// rules are the life of an attachment. README.md, here, shows them as a table.
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

// decide says what an attachment needs.
func decide(phase state.Phase, w want, a attachmentView) action {
	for _, r := range rules() {
		if slices.Contains(r.phases, phase) && slices.Contains(r.wants, w) && r.fits(a) {
			return r.then
		}
	}
	return none
}

// reconcile says what to do next about a claim: all that it decides on is given to it.
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
	owes := record.Owes()
	pick := func(do action) step { return step{do: do, at: needs[do]} }
	switch {
	case needs[doGiveUp] != nil && now.mayRetry:
		return pick(doGiveUp)
	case needs[doDel] != nil:
		return pick(doDel)
	case needs[doRestore] != nil:
		return pick(doRestore)
	case now.attachError && g.want != forget:
		return step{do: doRecordError}
	}
	if now.mayRetry {
		if needs[doClear] != nil && !now.neverSaved {
			return pick(doClear)
		}
		if s := recordStep(record, g, now, needs[doOpen], owes); s.do != none {
			return s
		}
		if needs[doAdd] != nil && needs[wait] == nil {
			return pick(doAdd)
		}
		if record.StatusOwed && now.reported && !now.unsaved {
			return step{do: doMarkReported}
		}
	}
	if needs[doDelAgain] != nil { // what the claim waits for may be the device that this gives back
		return pick(doDelAgain)
	}
	if len(needs[wait])+len(needs[doAdd])+len(needs[doDelAgain])+len(needs[waitToRetry]) > 0 || !now.mayRetry {
		return step{do: wait}
	}
	return step{}
}

// recordStep is what comes after each DEL that can be run, and before any ADD.
func recordStep(record *state.Claim, g goal, now claimView, closed []int, owes bool) step {
	switch {
	case now.neverSaved: // before it has a lease or a gate: what is owed is on disk first
		return step{do: doSave}
	case closed != nil:
		return step{do: doOpen, at: closed}
	case !owes && g.want == forget:
		return step{do: doForget}
	case len(record.Attachments)+len(record.Undeleted) == 0: // what is undeleted has come to its end
		return step{do: doForget}
	case now.unsaved:
		return step{do: doSave}
	}
	return step{}
}
