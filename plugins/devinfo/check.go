package plugin

import (
	"fmt"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/journal"
)

// Check compares what ADD left with what is there now: the delegates' own CHECK,
// the file, the device's identity, the interface. Optional facts that have changed
// are warnings.
func (p *Plugin) Check(args *Args) error {
	c, err := p.openStrict(args)
	if err != nil {
		return err
	}
	if c.nested() {
		return nil
	}
	name, err := c.fileName()
	if err != nil {
		return err
	}
	recorded, corrupt, err := c.lock()
	if err != nil {
		return err
	}
	defer recorded.Unlock()
	journaled := recorded != nil && !corrupt
	if journaled && !recorded.Complete {
		return compared(&check.Error{Kind: check.Unfinished, Err: fmt.Errorf("%s: ADD has not ended: it was killed", recorded.Key)})
	}
	if !journaled {
		recorded = c.reconstruct(nil)
	}
	now := *recorded
	now.Netns = args.Netns
	if err := c.checkDelegates(&now); err != nil {
		return err
	}
	if name != "" {
		now.File, now.Dir = name, c.Node.DeviceInfoDir
	}
	now.Wrote = now.File != "" && (now.Wrote || !journaled) // else ADD found nothing to write
	return c.compare(&now)
}

// compare compares the entry with what is there, and with what the configuration says of
// the device.
func (c *call) compare(e *journal.Entry) error {
	declared, _, err := c.att.Declared(c.cfg)
	if err != nil {
		return err
	}
	res, err := c.prevResult()
	if err != nil {
		return err
	}
	a := check.Checker{Finder: &c.Finder, Dir: store.Open}
	report := a.Compare(e, c.target(declared, nil, res))
	for _, w := range report.Warnings {
		c.log.Warn(w)
	}
	if err := report.Err(); err != nil {
		return compared(err)
	}
	for _, f := range report.Changed() {
		if f.Now != "" {
			c.log.Warn("changed since ADD", "key", f.Fact, "file", f.File, "now", f.Now, "source", f.Source)
		} else {
			c.log.Warn("changed since ADD", "key", f.Fact, "file", f.File, "journal", f.Journal)
		}
	}
	return nil
}
