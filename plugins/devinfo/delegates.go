package plugin

import (
	"bytes"
	"encoding/json"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// ran is what the delegates have left. Without any it is what was there before.
type ran struct {
	result *result.Result  // so far; nil = none
	raw    json.RawMessage // the last delegate's
}

// runDelegates records the attachment, takes the leases of what the delegates are asked to
// take, writes what is known so far, for those that read the file, and runs them. What they
// write to the file themselves makes a new past.
func (r *request) runDelegates(back *wayBack, before past) (ran, past, error) {
	if len(r.children) == 0 {
		return ran{result: r.prev}, before, nil
	}
	go r.listen()                 // begin waits for it
	early, err := r.early(before) // a conflict shows before anything is touched
	if err != nil {
		return ran{}, past{}, err
	}
	e := r.newEntry(r.prev)
	if e.Leases, err = r.askedLeases(r.children); err != nil {
		return ran{}, past{}, err
	}
	if early != nil {
		e.Wrote, e.Info, e.Kept = true, early.Encode(), says(back.before, early)
	}
	if err := r.record(back, e); err != nil {
		return ran{}, past{}, err
	}
	if err := r.writeFile(back, before, early); err != nil {
		return ran{}, past{}, err
	}
	last, err := r.addDelegates(back, e)
	if err != nil {
		return ran{}, past{}, err
	}
	after, err := r.reread(before, early)
	return last, after, err
}

// early is the device information that is known before the delegates have made the
// interface; nil when that is not enough for a file, or there is to be none.
func (r *request) early(before past) (*devinfo.Info, error) {
	target := r.target(r.declared, before.source, r.prev)
	target.Netns = ""
	known, err := r.Finder.Find(target)
	if err != nil || r.name == "" {
		return nil, err
	}
	info := devinfo.Merge(before.of(known), known.Info, r.declared)
	if info == nil || info.Validate().Err() != nil {
		return nil, nil
	}
	return info, nil
}

// addDelegates runs the delegates, notes for the way back what came of them, and warns of one
// that ignores its prevResult.
func (r *request) addDelegates(back *wayBack, e *journal.Entry) (ran, error) {
	n, err := r.delegates(e, r.args.Path)
	if err != nil {
		return ran{}, err
	}
	if err := r.begin(); err != nil {
		return ran{}, err
	}
	last, unread := ran{result: r.prev}, error(nil)
	back.result = e.PrevResult
	n.Before = r.interrupted
	n.After = func(delegate string, text []byte) {
		var res *result.Result
		if res, unread = result.Parse(text, r.cfg.CNIVersion); unread != nil {
			return
		}
		for _, lost := range last.result.Lost(res) {
			r.log.Warn("delegate "+delegate+" does not pass on what it was given", "lost", lost, "remedy", "put it first, or ask its makers to pass prevResult on")
		}
		last, back.result = ran{res, text}, text
	}
	_, err = n.Add(e.PrevResult)
	back.ran = n.Started
	if err != nil {
		return ran{}, failed("ADD", err)
	}
	if unread != nil {
		return ran{}, fail(codeDecoding, unread, "the last delegate printed it")
	}
	return last, r.interrupted()
}

// reread takes in what the delegates have written to the file themselves.
func (r *request) reread(before past, early *devinfo.Info) (past, error) {
	after := before
	after.early = early
	if r.name == "" {
		return after, nil
	}
	file, now, err := r.parsed(r.Infos, r.name)
	if err != nil {
		return past{}, err
	}
	after.file = file
	if now != nil && (early == nil || !bytes.Equal(now.Encode(), early.Encode())) {
		after.source, after.early = now, nil
	}
	return after, r.checkTypes(after.source)
}
