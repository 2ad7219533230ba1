package devinfo

import (
	"errors"
	"io/fs"
	"slices"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// undo is what an ADD has done, as a stack of inverses, for the case that a later step fails.
type undo struct {
	inverses []func() error
	recorded int            // number of inverses up to that of the entry, which stays for DEL, GC or the next ADD if a later one fails
	entry    *journal.Entry // the attachment's entry in the journal, locked; nil = none
}

func (u *undo) push(inverse func() error) { u.inverses = append(u.inverses, inverse) }

// run takes everything back, last first. A failure does not stop the rest, up to the entry.
func (u *undo) run() (errs []error) {
	for n, inverse := range slices.Backward(u.inverses) {
		if n < u.recorded && len(errs) > 0 {
			break
		}
		if err := inverse(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// commit records the plan, takes leases of the devices, and writes the files.
func (r *request) commit(p plan, done *undo) error {
	e := p.entry
	if e.File == "" && len(e.Delegates) == 0 && p.spec == nil && len(e.Leases) == 0 {
		if r.last == nil {
			return nil
		}
		return r.c.Removal(r.last).Run()
	}
	if err := r.record(e, done); err != nil {
		return err
	}
	if err := r.writeInfo(p.info, done); err != nil || p.spec == nil {
		return err
	}
	done.push(func() error { return r.c.Specs.Remove(e.CDI.File) })
	return setContent(r.c.Specs, e.CDI.File, p.spec) // avoids a write, because runtimes reread all specs when one changes
}

// writeInfo writes info to the device-info file. If info is nil it restores the content from before devinfo wrote.
func (r *request) writeInfo(info *devinfo.Info, done *undo) error {
	f := r.file
	if f.name == "" || info == nil && f.own == nil || sameInfo(f.text, info) {
		return nil
	}
	restore := r.restoring()
	if info == nil {
		return restore()
	}
	done.push(restore)
	if err := r.c.Infos.Make(); err != nil { // Multus creates a missing directory with mode 000
		return err
	}
	return r.c.Infos.Write(f.name, info.Encode())
}

// restoring returns a function that gives the device-info file the content that another program has written until now.
func (r *request) restoring() (restore func() error) {
	f := r.file
	return func() error {
		if f.name == "" {
			return nil
		}
		return setContent(r.c.Infos, f.name, f.original)
	}
}

// sriovPause and sriovTries limit the wait for sriov-cni's lock. In a chain, sriov-cni's DEL runs after devinfo's.
const (
	sriovPause = 50 * time.Millisecond
	sriovTries = 20
)

// record writes the entry to the journal and takes its leases. It replaces the last entry, that of a former ADD or what
// this ADD recorded before. In that case it first checks that no lease will be refused, and then removes the files that
// only the replaced entry has. While sriov-cni has a lock of a device, it tries again.
//
// If this ADD fails later, the former attachment comes back. It has ended if the entry has delegates, whose DEL may end its
// network.
func (r *request) record(e *journal.Entry, done *undo) (err error) {
	last := r.last
	returns := last != nil && len(e.Delegates) == 0
	if returns {
		file, spec := saved(store.Open(last.Dir), last.File), saved(store.Open(last.CDI.Dir), last.CDI.File)
		done.push(func() error { return failure.Join(file(), spec()) })
	}
	for range sriovTries {
		if err = r.removeReplaced(e); err == nil {
			err = r.c.Journal.Put(e, last)
		}
		if held, ok := errors.AsType[*journal.HeldError](err); !ok || held.Holder.Entry != nil || held.Holder.Claim != nil {
			break
		}
		time.Sleep(sriovPause)
	}
	if err != nil && failure.Code(err) == failure.IO {
		return failure.New(failure.IO, err, "check the journal's directory "+r.c.Node.StateDir+" (node setting stateDir)")
	} else if err != nil {
		return err
	}
	if done.entry = e; done.recorded > 0 { // the inverse of what this ADD has recorded before is the same
		return nil
	}
	done.push(func() error {
		if !returns {
			return r.c.Journal.Forget(done.entry)
		}
		done.entry = last
		return r.c.Journal.Put(last, e)
	})
	done.recorded = len(done.inverses)
	return nil
}

// removeReplaced removes the files of the last entry, if there is one, that the new entry does not have. Delegates must not
// find a CDI spec of a former attachment.
func (r *request) removeReplaced(e *journal.Entry) (err error) {
	if r.last == nil {
		return nil
	}
	if err := r.c.Journal.Free(e); err != nil {
		return err
	}
	replaced := r.c.Removal(r.last)
	if r.last.CDI != e.CDI || !e.Complete {
		err = replaced.RemoveSpec()
	}
	if r.last.Path() != e.Path() {
		err = failure.Join(err, replaced.RemoveFile())
	}
	return err
}

// saved returns a function that gives a file the content that it has now.
func saved(dir *store.Dir, name string) (restore func() error) {
	text, err := dir.Read(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil } // no name, or not a file: nothing here changes it
	}
	return func() error { return setContent(dir, name, text) }
}
