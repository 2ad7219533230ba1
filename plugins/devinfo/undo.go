package plugin

import (
	"encoding/json"
	"errors"
	"syscall"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

// rollback is what a failed ADD has to undo.
type rollback struct {
	former   *journal.Entry  // of the ADD that this one repeats, locked until it is replaced; nil = none
	entry    *journal.Entry  // as it was recorded last, locked; nil = nothing is recorded yet
	started  int             // the delegates that need a DEL
	result   json.RawMessage // of the last delegate that ended well
	original []byte          // see [earlier]
}

// end undoes an ADD that failed with err, and unlocks its entries. If undoing fails too, the entry
// stays: it tells DEL, GC and the next ADD what is left to do.
func (b *rollback) end(r *request, err error) error {
	defer b.former.Unlock()
	defer b.entry.Unlock()
	if err == nil || b.entry == nil {
		return err
	}
	e := *b.entry
	e.Delegates, e.Result = e.Delegates[:b.started], b.result
	return followedBy(err, r.undo(&e, func(*journal.Entry) error { return r.restore(b.original) }))
}

// undo undoes what an entry says of its attachment: the delegates in reverse, the CDI spec,
// the device-info file by the function given, and then the leases and the entry itself. What
// is gone already is success. Nothing stops the rest, but after a failure the entry stays.
func (c *call) undo(e *journal.Entry, file func(*journal.Entry) error) error {
	errs := c.delDelegates(e)
	files := func() error {
		err := c.removeSpec(e.CDI)
		if e.File == "" {
			return err
		}
		ours, unknown := c.mayRemove(journal.OfFile, e.File)
		if unknown == nil && ours {
			unknown = file(e)
		}
		return followedBy(nil, err, unknown)
	}
	if e.Locked() == nil {
		return followedBy(nil, append(errs, c.Journal.Unrecorded(e.Key, files))...)
	}
	if err := followedBy(nil, append(errs, files())...); err != nil {
		return err
	}
	return c.Journal.Forget(e)
}

// mayRemove reports whether a device-info file or a CDI spec is this attachment's: it has a lease
// of it, or nobody has and a file is not named after another container.
func (c *call) mayRemove(kind journal.Kind, name string) (bool, error) {
	if c.Journal.Holds(c.key, kind, name) {
		return true, nil
	}
	owner, err := c.Journal.Owner(kind, name)
	switch {
	case err != nil:
		return false, err
	case owner != nil:
		c.log.Warn("left alone: the "+kind.String()+" is another attachment's", "file", name, "owner", owner.String())
		return false, nil
	case kind == journal.OfFile && c.foreign(name):
		c.log.Warn("left alone: the file is named after another container", "file", name)
		return false, nil
	}
	return true, nil
}

// removeFile removes an entry's device-info file from the directory that was deviceInfoDir at ADD.
// A directory in its place is left alone: ADD has refused it.
func (c *call) removeFile(e *journal.Entry) error {
	err := store.Open(e.Dir).Remove(e.File)
	if errors.Is(err, syscall.EISDIR) {
		c.log.Warn("no file: left alone", "error", err)
		return nil
	}
	return err
}

// removeReplaced removes what a former ADD has made and the ADD that replaces it does not.
func (c *call) removeReplaced(former, e *journal.Entry) error {
	var err error
	if former.CDI != e.CDI {
		err = c.removeSpec(former.CDI)
	}
	if former.File != "" && former.Path() != e.Path() {
		err = followedBy(nil, err, c.removeFile(former))
	}
	return err
}
