package plugin

import (
	"encoding/json"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// delegated is what the plugins before and below this one have made.
type delegated struct {
	result *result.Result  // of the last of them; nil = none
	raw    json.RawMessage // the same as the last delegate printed it; nil = there is no delegate
}

// runDelegates records the attachment, takes the leases of the devices that the delegates are asked
// to take, writes the device-info file for those that read it, as far as it is known, and runs them.
func (r *request) runDelegates(undo *rollback, onDisk earlier) (delegated, earlier, error) {
	if len(r.children) == 0 {
		return delegated{result: r.prev}, onDisk, nil
	}
	go r.listen()                        // begin waits for it
	known, err := r.knownAlready(onDisk) // a conflict shows before anything is touched
	if err != nil {
		return delegated{}, earlier{}, err
	}
	e := r.newEntry(r.prev)
	if e.Leases, err = r.askedLeases(r.children); err != nil {
		return delegated{}, earlier{}, err
	}
	if known != nil {
		e.Wrote, e.Info, e.Kept = true, known.Encode(), says(onDisk.original, known)
	}
	if err := r.record(undo, e); err != nil {
		return delegated{}, earlier{}, err
	}
	if err := r.writeFile(onDisk, known); err != nil {
		return delegated{}, earlier{}, err
	}
	last, err := r.addDelegates(undo, e)
	if err != nil {
		return delegated{}, earlier{}, err
	}
	after, err := r.reread(onDisk, known)
	return last, after, err
}

// knownAlready is the device information that is known before the delegates have made the
// interface; nil if that is not enough for a file, or there is to be none.
func (r *request) knownAlready(onDisk earlier) (*devinfo.Info, error) {
	target := r.target(r.declared, onDisk.others, r.prev)
	target.Netns = ""
	known, err := r.Finder.Find(target)
	if err != nil || r.name == "" {
		return nil, err
	}
	info := devinfo.Merge(onDisk.facts(known, r.declared), known.Info, r.declared)
	if info == nil || info.Validate().Err() != nil {
		return nil, nil
	}
	return info, nil
}

// addDelegates runs the delegates, notes what a failed ADD has to undo of them, and warns of one that
// ignores its prevResult.
func (r *request) addDelegates(undo *rollback, e *journal.Entry) (delegated, error) {
	n, err := r.delegates(e, r.args.Path)
	if err != nil {
		return delegated{}, err
	}
	if err := r.begin(); err != nil {
		return delegated{}, err
	}
	last, unread := delegated{result: r.prev}, error(nil)
	undo.result = e.PrevResult
	n.Before = r.interrupted
	n.After = func(delegate string, text []byte) {
		var res *result.Result
		if res, unread = result.Parse(text, r.cfg.CNIVersion); unread != nil {
			return
		}
		for _, lost := range last.result.Lost(res) {
			r.log.Warn("delegate "+delegate+" does not pass on what it was given", "lost", lost, "remedy", "put it first, or ask its makers to pass prevResult on")
		}
		last, undo.result = delegated{res, text}, text
	}
	_, err = n.Add(e.PrevResult)
	undo.started = n.Started
	if err != nil {
		return delegated{}, failed("ADD", err)
	}
	if unread != nil {
		return delegated{}, fail(codeDecoding, unread, "the last delegate printed it")
	}
	return last, r.interrupted()
}
