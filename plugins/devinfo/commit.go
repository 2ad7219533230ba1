package plugin

import (
	"bytes"
	"cmp"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
)

// commit journals what was found and then writes the files. It gives the entry, nil where
// there is nothing to record. One with delegates is complete only after the files: until
// then a killed ADD is cleaned up after.
func (r *request) commit(steps *steps, past past, ran ran, found found) (*journal.Entry, error) {
	delegating := len(r.children) > 0
	if r.name == "" && !delegating && found.offer.spec == nil && past.entry == nil {
		return nil, nil
	}
	e := r.newEntry(past, ran.result)
	e.Result, e.Complete, e.InNetns = ran.raw, !delegating, found.device.InNetns
	if found.info != nil {
		e.Wrote = r.name != ""
		e.Device = journal.Device{Type: string(found.info.Type), ID: discovery.Identity(found.info)}
	}
	if e.Wrote {
		e.Info = found.info.Encode()
	}
	if found.offer.spec == nil {
		e.CDI = journal.CDI{}
	}
	e.SocketDir = found.offer.socketDir
	earlier := cmp.Or(ran.begun, past.entry)
	e.Former = formerNames(earlier, e.Names())
	if !delegating || !covers(ran.begun, e) {
		if err := r.record(steps, e, earlier); err != nil {
			return nil, err
		}
		earlier = e
	}
	if err := r.writeFile(steps, past, found); err != nil {
		return nil, err
	}
	if err := r.writeSpec(steps, past, found.offer); err != nil || !delegating {
		return e, err
	}
	complete := *e
	complete.Complete = true
	return &complete, r.record(steps, &complete, earlier)
}

// covers says that an entry tells of all that the files of a later one will be, so that the
// clean-up after a killed ADD needs no other.
func covers(begun, e *journal.Entry) bool {
	return begun.Names() == e.Names() && begun.Wrote == e.Wrote && bytes.Equal(begun.Info, e.Info)
}

// record writes the journal's entry in place of an earlier one.
func (r *request) record(steps *steps, e, earlier *journal.Entry) error {
	undo, err := r.Journal.Put(e, earlier)
	switch {
	case err == nil && steps.entry == nil:
		steps.entry = undo
	case err == nil:
		steps.push(undo)
	case !as[*journal.OwnedError](err) && !as[*store.NameError](err):
		return fail(codeOf(err), err, "the journal is in the node setting stateDir, "+r.Node.StateDir)
	}
	return err
}

// writeFile writes the device-info file, unless it says the same already. What we have
// written ourselves, of a device that is not found any more, is taken back.
func (r *request) writeFile(steps *steps, past past, found found) error {
	nothing := found.info == nil && past.own == nil || past.file != nil && found.info != nil && says(past.file, found.info)
	if r.name == "" || nothing {
		return nil
	}
	steps.push(func() error { return restore(r.Infos, r.name, past.file == nil, past.file) })
	if found.info == nil {
		return restore(r.Infos, r.name, past.before == nil, past.before)
	}
	return r.Infos.Write(r.name, found.info.Encode())
}

// writeSpec writes the CDI spec, unless it is there already: container runtimes read
// all specs anew when one changes.
func (r *request) writeSpec(steps *steps, past past, offer offer) error {
	if offer.spec == nil || bytes.Equal(offer.spec, past.spec) {
		return nil
	}
	steps.push(func() error { return restore(r.Specs, r.spec.File, past.spec == nil, past.spec) })
	return r.Specs.Write(r.spec.File, offer.spec)
}

// removeFormer removes what earlier ADDs of this attachment have written under other
// names. What cannot be removed stays in the entry.
func (r *request) removeFormer(e *journal.Entry) {
	if e == nil || len(e.Former) == 0 {
		return
	}
	now := *e
	now.Former = nil
	for _, n := range e.Former {
		err := r.removeNames(n, func() error { return r.removeFile(n) })
		if err == nil {
			err = r.Journal.Release(r.key, unlike(n, e.Names()))
		}
		if err != nil {
			r.log.Warn("left behind until DEL", "error", err)
			now.Former = append(now.Former, n)
		}
	}
	if _, err := r.Journal.Put(&now, e); err != nil {
		r.log.Warn("journal entry not renewed", "error", err)
	}
}

// unlike are the names of which none is one of now: where a directory of the node has
// changed, a former file may have the name, and with it the claim, of the present one.
func unlike(n, now journal.Names) journal.Names {
	if n.File == now.File {
		n.File = ""
	}
	if n.CDI.File == now.CDI.File {
		n.CDI.File = ""
	}
	if n.SocketDir == now.SocketDir {
		n.SocketDir = ""
	}
	return n
}
