package plugin

import (
	"fmt"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
)

// Check compares the attachment with its journal entry. The delegates run their own CHECK. The device-info
// file, the device and the interface must be those of ADD; changes of optional facts are warnings.
func (p *Plugin) Check(args *Args) error {
	c, err := p.openStrict(args)
	if err != nil {
		return err
	}
	if c.nested() {
		return nil
	}
	name, err := c.infoFileName()
	if err != nil {
		return err
	}
	recorded, err := c.entry()
	defer recorded.Unlock()
	if err != nil && !as[*store.CorruptError](err) {
		return err
	}
	journaled := recorded != nil
	if !journaled {
		recorded = c.reconstruct(nil)
	}
	now := *recorded
	now.Netns = args.Netns // the runtime's path is current
	a := &check.Checker{Finder: &c.plugin.Finder, Dir: store.Open, NetnsGone: link.NetnsGone, BootID: c.plugin.BootID}
	state, why := a.State(&now, err)
	if state == check.Adding { // the entry is locked, so ADD is not running
		why = "ADD was killed before it finished"
	}
	if kind, over := state.Incomparable(); journaled && over {
		return checkError(&check.Error{Kind: kind, Err: fmt.Errorf("attachment %s: %s", c.key, why)})
	}
	if err := c.checkDelegates(&now); err != nil {
		return err
	}
	if name != "" {
		now.File, now.Dir = name, c.plugin.Node.DeviceInfoDir
	}
	now.Wrote = now.File != "" && (now.Wrote || !journaled) // without a journal entry, ADD must have written the file
	return c.compare(a, &now)
}

// compare compares the entry with the node, and with the device that the configuration names.
func (c *call) compare(a *check.Checker, e *journal.Entry) error {
	declared, _, err := c.att.Declared(c.cfg)
	if err != nil {
		return err
	}
	res, err := c.prevResult()
	if err != nil {
		return err
	}
	report := a.Compare(e, c.target(declared, nil, res))
	for _, w := range report.Warnings {
		c.log.Warn(w)
	}
	if err := report.Err(); err != nil {
		return checkError(err)
	}
	for _, f := range report.Changed() {
		c.log.Warn(f.Change(), "source", f.Source)
	}
	return nil
}

// checkDelegates runs the CHECK of an entry's delegates, with the runtime's result.
func (c *call) checkDelegates(e *journal.Entry) error {
	if len(e.Delegates) == 0 {
		return nil
	}
	n, err := c.plugin.delegates(e, c.args.Path)
	if err != nil {
		return err
	}
	if err := c.begin(); err != nil {
		return err
	}
	prev := c.cfg.PrevResult
	if prev == nil {
		prev = e.Result
	}
	return delegateError("CHECK", n.Check(prev))
}
