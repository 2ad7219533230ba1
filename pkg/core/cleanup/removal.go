package cleanup

import (
	"encoding/json"
	"errors"
	"syscall"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// A Removal ends one attachment. [Cleaner.Removal] fills its fields from the journal entry; the caller replaces
// those that it knows better.
type Removal struct {
	Entry *journal.Entry // locked, or not in the journal but reconstructed

	Netns     string            // network namespace for the delegates' DEL; "" = gone
	Delegates []json.RawMessage // the delegates that need a DEL
	Result    json.RawMessage   // the last delegate's result
	Dir, File string            // the device-info file

	cleaner *Cleaner
}

func (c *Cleaner) Removal(e *journal.Entry) *Removal {
	return &Removal{Entry: e, Netns: e.Netns, Delegates: e.Delegates, Result: e.Result, Dir: e.Dir, File: e.File, cleaner: c}
}

// Run runs the delegates' DEL in reverse order, removes the CDI spec and the device-info file, and then releases the
// leases and removes the entry. Missing files and leases count as removed. A failure does not stop the rest, but
// keeps the entry.
func (r *Removal) Run() error {
	delegates, of := r.DelDelegates(), r.cleaner.Journal
	files := func() error { return failure.Join(r.RemoveSpec(), r.RemoveFile()) }
	if r.Entry.Locked() == nil {
		return failure.Join(delegates, of.Unrecorded(r.Entry.Key, files))
	}
	if err := failure.Join(delegates, files()); err != nil {
		return err
	}
	return of.Forget(r.Entry)
}

// mayRemove reports whether there is a file that belongs to this attachment. If it belongs to another one, mayRemove logs a
// warning.
func (r *Removal) mayRemove(kind journal.Kind, name string) (bool, error) {
	if name == "" {
		return false, nil
	}
	if r.cleaner.Journal.Holds(r.Entry.Key, kind, name) {
		return true, nil
	}
	foreign, err := r.cleaner.Foreign(r.Entry.Key, kind, name)
	if foreign != "" {
		r.cleaner.Log.Warn("not removed: the "+kind.String()+" "+foreign, "file", name)
	}
	return err == nil && foreign == "", err
}

// RemoveFile removes the device-info file from the directory that was deviceInfoDir at ADD.
func (r *Removal) RemoveFile() error {
	ours, err := r.mayRemove(journal.OfFile, r.File)
	if err != nil || !ours {
		return err
	}
	err = store.Open(r.Dir).Remove(r.File)
	if errors.Is(err, syscall.EISDIR) { // ADD refuses a directory too
		r.cleaner.Log.Warn("device-info file not removed", "error", err)
		return nil
	}
	return err
}

// RemoveSpec removes the CDI spec from the directory that was cdiDir at ADD, unless another program wrote it.
func (r *Removal) RemoveSpec() error {
	spec := r.Entry.CDI
	ours, err := r.mayRemove(journal.OfSpec, spec.File)
	if err != nil || !ours {
		return err
	}
	dir := store.Open(spec.Dir)
	err = store.UnlessGone(check.ReadSpec(dir, spec.File))
	switch {
	case errors.As(err, new(syscall.Errno)):
		return err
	case err != nil: // ADD refuses it too
		r.cleaner.Log.Warn("CDI spec not removed: devinfo did not write it", "error", err)
		return nil
	}
	return dir.Remove(spec.File)
}
