package plugin

import (
	"errors"
	"slices"
	"syscall"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/journal"
)

// Steps is what an ADD has done so far, as the way back: each write pushes its inverse.
type steps struct {
	entry func() error // the way back of the journal's entry; nil = nothing is recorded yet
	done  []func() error
}

func (s *steps) push(inverse func() error) { s.done = append(s.done, inverse) }

// undo goes back, the last step first. The entry goes last, and stays if anything has
// failed: it tells DEL, GC and the next ADD what there is left to do.
func (s *steps) undo() (errs []error) {
	for n := len(s.done) - 1; n >= 0; n-- {
		if err := s.done[n](); err != nil {
			errs = append(errs, err)
		}
	}
	if s.entry == nil || len(errs) > 0 {
		return errs
	}
	if err := s.entry(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// A fate is what becomes of a device-info file of an entry that is undone.
type fate func(*journal.Entry, journal.Names) error

// undo undoes what an entry says of its attachment: the delegates in reverse, CDI specs,
// device-info files by the function given, and then the claims and the entry itself. What
// is gone already is success. Nothing stops the rest, but after a failure the entry stays.
func (c *call) undo(e *journal.Entry, file fate) error {
	errs := c.passOver(c.cni.del(e))
	if c.still != nil {
		if err := c.still(); err != nil {
			return followedBy(err, errs...)
		}
	}
	for _, n := range e.All() {
		errs = append(errs, c.removeNames(n, func() error { return file(e, n) }))
	}
	if err := followedBy(nil, errs...); err != nil {
		return err
	}
	if err := c.Journal.Forget(e); err != nil && !as[*store.NameError](err) { // ADD refuses such names
		return err
	}
	return nil
}

// passOver drops the errors of delegates that cannot be run if no ADD is on record: it
// failed because of them, and undid the rest.
func (c *call) passOver(errs []error) []error {
	return slices.DeleteFunc(errs, func(err error) bool {
		pass := c.unrecorded && err != nil && unfit(err)
		if pass {
			c.log.Warn("ignored", "error", err)
		}
		return pass
	})
}

// removeNames removes what has these names, the device-info file by the function given.
// Another attachment's is left alone.
func (c *call) removeNames(n journal.Names, file func() error) error {
	err := c.removeSpec(n.CDI)
	if n.File == "" {
		return err
	}
	ours, unknown := c.mayRemove(n)
	if unknown == nil && ours {
		unknown = file()
	}
	return followedBy(nil, err, unknown)
}

// mayRemove reports whether a device-info file is this attachment's: it has claimed the
// file, or nobody has and the file is not named after another container.
func (c *call) mayRemove(n journal.Names) (bool, error) {
	if ours, err := c.Journal.Holds(c.key, n.File); err != nil || ours {
		return ours, err
	}
	owner, owned, err := c.Journal.Owner(n.File)
	switch {
	case err != nil:
		return false, err
	case owned:
		c.log.Warn("left alone: the file is another attachment's", "file", n.File, "owner", owner)
		return false, nil
	case c.foreign(n.File):
		c.log.Warn("left alone: the file is named after another container", "file", n.File)
		return false, nil
	}
	return true, nil
}

// gone is the fate of files on DEL and GC.
func (c *call) gone(_ *journal.Entry, n journal.Names) error { return c.removeFile(n) }

// removeFile removes a device-info file from the directory that was deviceInfoDir at ADD.
// A directory in its place is left alone: ADD has refused it.
func (c *call) removeFile(n journal.Names) error {
	err := store.Open(n.Dir).Remove(n.File)
	if errors.Is(err, syscall.EISDIR) {
		c.log.Warn("left alone", "error", err)
		return nil
	}
	return err
}
