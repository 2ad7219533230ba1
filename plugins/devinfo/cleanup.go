package plugin

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/journal"
)

// cleanup removes the attachment of a journal entry, for DEL and GC, and for an ADD that fails or follows a former one.
type cleanup struct {
	*call
	entry      *journal.Entry
	removeInfo func() error // removes or restores the device-info file; nil = remove it
}

// run runs the delegates' DEL in reverse order, removes the CDI spec and the device-info file, and
// then releases the leases and removes the entry. Missing files and leases count as removed. A failure
// does not stop the rest, but keeps the entry.
func (c cleanup) run() error {
	e := c.entry
	errs := c.delDelegates()
	files := func() error { return followedBy(nil, c.removeSpec(), c.removeFile()) }
	if e.Locked() == nil {
		return followedBy(nil, append(errs, c.plugin.Journal.Unrecorded(e.Key, files))...)
	}
	if err := followedBy(nil, append(errs, files())...); err != nil {
		return err
	}
	return c.plugin.Journal.Forget(e)
}

// delDelegates runs the DEL of all the entry's delegates, even if some fail. They must not take a device away
// from another pod that has got the device since ADD. If another pod has it, the delegates get no network
// namespace, or do not run at all if the journal has no record of this ADD.
func (c cleanup) delDelegates() (errs []error) {
	if len(c.entry.Delegates) == 0 {
		return nil
	}
	e, held := *c.entry, new(journal.HeldError)
	unrecorded := e.Locked() == nil
	switch err := c.heldByAnother(); {
	case err != nil && unrecorded:
		c.log.Warn("not running the delegates' DEL", "error", err)
		return nil
	// If Holder.Netns is set, the holder is a lock of sriov-cni, which may be this attachment's own by another path.
	// Otherwise another pod got the device after the namespace had ended or a DEL was killed.
	case errors.As(err, &held) && held.Holder.Netns == "":
		c.log.Warn("running the delegates' DEL without a network namespace", "error", err)
		e.Netns = ""
	}
	n, err := c.plugin.delegates(&e, c.args.Path)
	if err != nil {
		return []error{err}
	}
	errs = append(errs, c.begin())
	for _, err := range n.Del(e.Result, nil) {
		// The ADD of a delegate that cannot be executed failed, and that ADD has undone the other delegates.
		if err = delegateError("DEL", err); err != nil && unrecorded && cannotExecute(err) {
			c.log.Warn("not running a delegate's DEL", "error", err)
			continue
		}
		errs = append(errs, err)
	}
	return errs
}

// heldByAnother returns a [*journal.HeldError] if another pod has a device that askedLeases finds.
func (c cleanup) heldByAnother() error {
	if c.plugin.Finder.Sys == nil {
		return nil
	}
	asked, err := c.askedLeases(c.entry.Delegates)
	if err != nil {
		return err
	}
	pod := cmp.Or(c.entry.Pod, c.att.Pod().String())
	if err := c.plugin.Journal.Free(&journal.Entry{Key: c.key, Netns: c.entry.Netns, Pod: pod, Leases: asked}); as[*journal.HeldError](err) {
		return err
	}
	return nil
}

// mayRemove reports whether a file belongs to this attachment. If it belongs to another one, mayRemove logs a warning.
func (c cleanup) mayRemove(kind journal.Kind, name string) (bool, error) {
	if c.plugin.Journal.Holds(c.key, kind, name) {
		return true, nil
	}
	foreign, err := c.foreignReason(kind, name)
	if foreign != "" {
		c.log.Warn("not removed: the "+kind.String()+" "+foreign, "file", name)
	}
	return err == nil && foreign == "", err
}

// removeFile removes the device-info file, by removeInfo or from the directory that was deviceInfoDir at ADD.
func (c cleanup) removeFile() error {
	if c.entry.File == "" {
		return nil
	}
	ours, err := c.mayRemove(journal.OfFile, c.entry.File)
	if err != nil || !ours {
		return err
	}
	if c.removeInfo != nil {
		return c.removeInfo()
	}
	err = store.Open(c.entry.Dir).Remove(c.entry.File)
	if errors.Is(err, syscall.EISDIR) { // ADD refuses a directory too
		c.log.Warn("device-info file not removed", "error", err)
		return nil
	}
	return err
}

// removeSpec removes the CDI spec from the directory that was cdiDir at ADD, unless another program wrote it.
func (c cleanup) removeSpec() error {
	spec := c.entry.CDI
	if spec.File == "" {
		return nil
	}
	ours, err := c.mayRemove(journal.OfSpec, spec.File)
	if err != nil || !ours {
		return err
	}
	dir := store.Open(spec.Dir)
	_, err = check.ReadSpec(dir, spec.File)
	switch {
	case as[syscall.Errno](err):
		return err
	case err != nil: // ADD refuses it too
		c.log.Warn("CDI spec not removed: devinfo did not write it", "error", err)
		return nil
	}
	return dir.Remove(spec.File)
}

// saveFiles reads the files of the entry, and returns a function that writes the same content again.
func (c cleanup) saveFiles() (restore func() error) {
	var restores []func() error
	for _, path := range []string{c.entry.Path(), filepath.Join(c.entry.CDI.Dir, c.entry.CDI.File)} {
		dir, name := store.Open(filepath.Dir(path)), filepath.Base(path)
		if text, err := dir.Read(name); err == nil || errors.Is(err, fs.ErrNotExist) {
			restores = append(restores, func() error { return setContent(dir, name, text) })
		}
	}
	return func() (err error) {
		for _, restore := range restores {
			err = followedBy(err, restore())
		}
		return err
	}
}

// removeReplaced removes the files of the old entry that the new entry does not have.
func (c cleanup) removeReplaced(by *journal.Entry) (err error) {
	if c.entry.CDI != by.CDI {
		err = c.removeSpec()
	}
	if c.entry.Path() != by.Path() {
		err = followedBy(nil, err, c.removeFile())
	}
	return err
}
