package devinfo

import (
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// commit records the plan, takes leases of the devices, and writes the files.
func (r request) commit(p plan, done *undo) error {
	e := p.entry
	if e.File == "" && len(e.Delegates) == 0 && p.spec == nil && len(e.Leases) == 0 {
		if r.last == nil {
			return nil
		}
		return r.c.cleaner().Removal(r.last).Run()
	}
	if err := r.c.record(e, r.last, done); err != nil {
		return err
	}
	if err := r.writeInfo(p.info, done); err != nil || p.spec == nil {
		return err
	}
	done.push(func() error { return r.c.Specs.Remove(e.CDI.File) })
	return setContent(r.c.Specs, e.CDI.File, p.spec) // avoids a write, because runtimes reread all specs when one changes
}

// writeInfo writes info to the device-info file. If info is nil it restores the content from before devinfo wrote.
func (r request) writeInfo(info *devinfo.Info, done *undo) error {
	f := r.file
	if f.name == "" || info == nil && f.own == nil || info != nil && sameInfo(f.text, info) {
		return nil
	}
	if info == nil {
		return r.restoreInfo()
	}
	done.push(r.restoreInfo)
	if err := r.c.Infos.Make(); err != nil { // Multus creates a missing directory with mode 000
		return err
	}
	return r.c.Infos.Write(f.name, info.Encode())
}

// restoreInfo gives the device-info file the content from before devinfo wrote.
func (r request) restoreInfo() error {
	if r.file.name == "" {
		return nil
	}
	return setContent(r.c.Infos, r.file.name, r.file.original)
}

// sriovPause and sriovTries limit the wait for sriov-cni's lock. In a chain, sriov-cni's DEL runs after devinfo's.
const (
	sriovPause = 50 * time.Millisecond
	sriovTries = 20
)

// record writes the entry to the journal and takes its leases. It replaces the last entry, that of a former ADD or what
// this ADD recorded before. In that case it first checks that no lease will be refused, and then removes the files that
// only the replaced entry has. While sriov-cni has a lock of a device, it tries again.
func (c *Call) record(e, last *journal.Entry, done *undo) (err error) {
	again := last != nil && len(last.Delegates) > 0
	if last != nil && !again {
		done.record = savedFiles(last)
	}
	for range sriovTries {
		if err = c.removeReplaced(last, e); err == nil {
			err = c.Journal.Put(e, last)
		}
		if held, ok := errors.AsType[*journal.HeldError](err); !ok || held.Holder.Entry != nil || held.Holder.Claim != nil {
			break
		}
		time.Sleep(sriovPause)
	}
	switch {
	case err != nil && failure.Code(err) == failure.IO:
		return failure.New(failure.IO, err, "check the journal's directory "+c.Node.StateDir+" (node setting stateDir)")
	case err != nil:
		return c.heldError(err)
	}
	if done.entry = e; again {
		return nil
	}
	restore := done.record
	done.record = func() error {
		if last == nil {
			return c.Journal.Forget(done.entry)
		}
		done.entry = last
		if err := c.Journal.Put(last, e); err != nil {
			return err
		}
		return restore()
	}
	return nil
}

// removeReplaced removes the files of the last entry, if there is one, that the new entry does not have.
func (c *Call) removeReplaced(last, e *journal.Entry) error {
	if last == nil {
		return nil
	}
	if err := c.Journal.Free(e); err != nil {
		return err
	}
	var err error
	r := c.cleaner().Removal(last)
	if last.CDI != e.CDI {
		err = r.RemoveSpec()
	}
	if last.Path() != e.Path() {
		err = failure.Join(err, r.RemoveFile())
	}
	return err
}

// savedFiles reads the files of the entry, and returns a function that writes the same content again.
func savedFiles(e *journal.Entry) (restore func() error) {
	var restores []func() error
	for _, path := range []string{e.Path(), filepath.Join(e.CDI.Dir, e.CDI.File)} {
		dir, name := store.Open(filepath.Dir(path)), filepath.Base(path)
		if text, err := dir.Read(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			restores = append(restores, func() error { return setContent(dir, name, text) })
		}
	}
	return func() (err error) {
		for _, restore := range restores {
			err = failure.Join(err, restore())
		}
		return err
	}
}
