package plugin

import (
	"cmp"
	"encoding/json"
	"reflect"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// ran is what the delegates have left. Without any it is what was there before.
type ran struct {
	begun  *journal.Entry  // as it was recorded before they ran; nil = no delegates
	result *result.Result  // so far; nil = none
	raw    json.RawMessage // the last delegate's
}

// runDelegates records the attachment, writes what is known so far, for the children that
// read the file, and runs them. What they write to the file themselves makes a new past.
func (r *request) runDelegates(steps *steps, before past) (ran, past, error) {
	if len(r.children) == 0 {
		return ran{result: r.prev}, before, nil
	}
	r.listen()
	early, err := r.early(before) // a conflict shows before anything is touched
	if err != nil {
		return ran{}, past{}, err
	}
	e := r.newEntry(before, r.prev)
	e.Former = formerNames(before.entry, e.Names())
	if early != nil {
		e.Wrote, e.Info = true, early.Encode()
	}
	if err := r.record(steps, e, before.entry); err != nil {
		return ran{}, past{}, err
	}
	if r.name != "" { // the children may write it too
		steps.push(func() error { return restore(r.Infos, r.name, before.file == nil, before.file) })
	}
	if early != nil && !says(before.file, early) {
		if err := r.Infos.Write(r.name, early.Encode()); err != nil {
			return ran{}, past{}, err
		}
	}
	raw, err := r.addDelegates(steps, e)
	if err != nil {
		return ran{}, past{}, err
	}
	res, err := result.Parse(raw, r.cfg.CNIVersion)
	if err != nil {
		return ran{}, past{}, fail(codeDecoding, err, "the last delegate printed it")
	}
	after, err := r.reread(before, early)
	return ran{begun: e, result: res, raw: raw}, after, err
}

// early is the device information that is known before the delegates have made the
// interface; nil when that is not enough for a file, or there is to be none.
func (r *request) early(before past) (*devinfo.Info, error) {
	target := r.target(before, r.prev)
	target.Netns = ""
	known, err := r.Finder.Find(target)
	if err != nil || r.name == "" {
		return nil, err
	}
	info := devinfo.Merge(before.source, known.Info, r.declared)
	if info == nil || info.Validate().Err() != nil {
		return nil, nil
	}
	return info, nil
}

// addDelegates runs the delegates. Those that have been started are deleted on the way
// back, the failed one included.
func (r *request) addDelegates(steps *steps, e *journal.Entry) (json.RawMessage, error) {
	started, raw := 0, e.PrevResult
	steps.push(func() error {
		undo := *e
		undo.Delegates, undo.Result = e.Delegates[:started], raw
		return followedBy(nil, r.cni.del(&undo)...)
	})
	var err error
	raw, started, err = r.cni.add(e, r.interrupted, r.warnOfLost)
	return raw, err
}

// warnOfLost tells of a delegate that ignores its prevResult.
func (r *request) warnOfLost(delegate string, before, after json.RawMessage) {
	if before == nil {
		return
	}
	was, err := result.Parse(before, r.cfg.CNIVersion)
	if err != nil {
		return
	}
	is, err := result.Parse(after, r.cfg.CNIVersion)
	if err != nil {
		return // what is read next is this one
	}
	for _, lost := range was.Lost(is) {
		r.log.Warn("delegate "+delegate+" does not pass on what it was given", "lost", lost, "remedy", "put it first, or ask its makers to pass prevResult on")
	}
}

// reread takes in what the delegates have written to the file themselves.
func (r *request) reread(before past, early *devinfo.Info) (past, error) {
	after := before
	if r.name == "" {
		return after, nil
	}
	file, now, err := r.parsed(r.Infos, r.name)
	if err != nil {
		return past{}, err
	}
	after.file = file
	switch {
	case now == nil || early != nil && reflect.DeepEqual(now, early) || early == nil && reflect.DeepEqual(now, before.own):
		after.own = cmp.Or(early, before.own)
	default:
		after.source, after.own = now, nil
	}
	return after, r.checkTypes(after.source)
}
