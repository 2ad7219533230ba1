package plugin

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// Check compares the attachment with its journal entry. The device-info file, the device and the interface must be
// those of ADD; changes of optional facts are warnings. If the journal has no entry, reconstruct fills in the entry that
// ADD would have written. Check calls first before it compares a living attachment.
func Check(c *Call, reconstruct func(*Call, *journal.Entry), first func(*journal.Entry) error) error {
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
		reconstruct(c, recorded)
	}
	now := *recorded
	now.Netns = c.Args.Netns // the runtime's path is current
	a := &check.Checker{Finder: &c.Finder, Dir: store.Open, NetnsGone: link.NetnsGone, BootID: c.BootID}
	state, why := a.State(&now, err)
	if state == check.Adding { // the entry is locked, so ADD is not running
		why = "ADD was killed before it finished"
	}
	if kind, over := state.Incomparable(); journaled && over {
		return failure.OfCheck(&check.Error{Kind: kind, Err: fmt.Errorf("attachment %s: %s", c.Key, why)})
	}
	if err := first(&now); err != nil {
		return err
	}
	if name != "" {
		now.File, now.Dir = name, c.Node.DeviceInfoDir
	}
	now.Wrote = now.File != "" && (now.Wrote || !journaled) // without a journal entry, ADD must have written the file
	return compare(c, a, &now)
}

func compare(c *Call, a *check.Checker, e *journal.Entry) error {
	declared, _, err := c.Attachment.Declared(c.Config)
	if err != nil {
		return err
	}
	res, err := c.prevResult()
	if err != nil {
		return err
	}
	report := a.Compare(e, c.Target(declared, nil, res))
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
