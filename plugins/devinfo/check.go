package devinfo

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// check compares the attachment with its journal entry. The device-info file, the device and the interface must be
// those of ADD; changes of optional facts are warnings. Without an entry, it compares with what ADD would have written. The
// delegates of a living attachment run their own CHECK first.
func (c *Call) check() error {
	if c.itself() {
		return nil
	}
	if err := checkNetns(c.Attachment.Args); err != nil && !errors.Is(err, link.ErrNoNetns) { // delegates would check the host's interfaces
		return err
	}
	name, err := c.infoFileName()
	if err != nil {
		return err
	}
	recorded, err := c.Lock(c.Key)
	defer recorded.Unlock()
	if err != nil && !errors.As(err, new(*store.CorruptError)) {
		return err
	}
	journaled := recorded != nil
	if !journaled {
		recorded = &journal.Entry{Key: c.Key}
		c.reconstruct(recorded)
	}
	now := *recorded
	if now.Netns != c.Attachment.Netns { // the runtime's path is current
		now.Netns, now.Inode = c.Attachment.Netns, 0
	}
	a := &check.Checker{Finder: &c.Finder, Dir: store.Open, Journal: c.Journal}
	state, why := a.State(&now, err)
	if state == check.Adding { // the entry is locked, so ADD is not running
		why = "ADD was killed before it finished"
	}
	if journaled && state.Incomparable() {
		return failure.OfCheck(&check.Error{State: state, Err: fmt.Errorf("attachment %s: %s", c.Key, why)})
	}
	if err := c.checkDelegates(&now); err != nil {
		return err
	}
	if name != "" {
		now.File, now.Dir = name, c.Node.DeviceInfoDir
	}
	now.Wrote = now.File != "" && (now.Wrote || !journaled) // without a journal entry, ADD must have written the file
	return c.compare(a, &now)
}

func (c *Call) compare(a *check.Checker, e *journal.Entry) error {
	declared, _, err := c.Attachment.Declared(c.Config)
	if err != nil {
		return err
	}
	res, err := c.prevResult()
	if err != nil {
		return err
	}
	report := a.Compare(e, c.target(declared, nil, res))
	for _, w := range report.Warnings {
		c.Log.Warn(w)
	}
	if err := report.Err(); err != nil {
		return failure.OfCheck(err)
	}
	for _, f := range report.Changed() {
		c.Log.Warn(f.Change(), "source", f.Source)
	}
	return nil
}

// checkDelegates runs CHECK of the entry's delegates, with the runtime's result.
func (c *Call) checkDelegates(e *journal.Entry) error {
	if len(e.Delegates) == 0 {
		return nil
	}
	n, err := c.Network(e, e.Delegates, e.Netns)
	if err != nil {
		return err
	}
	prev := c.Config.PrevResult
	if prev == nil {
		prev = e.Result
	}
	return failure.OfDelegate("CHECK", n.Check(prev))
}
