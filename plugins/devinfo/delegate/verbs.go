package delegate

import (
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// check is CHECK. The delegates of the entry run their own CHECK first, with the runtime's result.
func (d *Delegates) check(c *plugin.Call) error {
	if d.Within == c.Key.String() {
		return nil
	}
	return plugin.Check(c, reconstruct, func(e *journal.Entry) error {
		if len(e.Delegates) == 0 {
			return nil
		}
		n, err := c.Network(e, e.Delegates, e.Netns)
		if err != nil {
			return err
		}
		d.listen()
		prev := c.Config.PrevResult
		if prev == nil {
			prev = e.Result
		}
		return failure.OfDelegate("CHECK", n.Check(prev))
	})
}

// reconstruct fills in a missing or corrupt entry as ADD would have written it, with the delegates.
func reconstruct(c *plugin.Call, e *journal.Entry) {
	able := *c.Config
	able.Delegates = nil
	delegates := c.Config.Delegates
	if err := c.Refusal(); err != nil && len(delegates) > 0 { // so they have not run
		c.Log.Warn("not running the delegates' DEL", "error", err)
		delegates = nil
	}
	for n, delegate := range delegates { // ADD refuses delegates that cannot run, so they have not run
		if err := runnable(c, n); err != nil {
			c.Log.Warn("not running a delegate's DEL", "error", err)
		} else {
			able.Delegates = append(able.Delegates, delegate)
		}
	}
	e.Delegates, e.CapabilityArgs = able.DelegateConfigs(), capabilityArgs(c)
	plugin.Reconstruct(c, e)
}

// gc is GC: it deletes the attachments that the runtime does not list, runs the delegates' GC, and sweeps leftover
// files. If the runtime passes no list, the delegates' GC does not run, because a delegate might take a missing list
// for an empty one. A failure does not stop the rest; all errors are reported.
func (d *Delegates) gc(c *plugin.Call) error {
	if err := c.Journal.Own(); err != nil {
		return failure.New(failure.Config, err, journal.OwnRemedy)
	}
	errs := plugin.Collect(c, reconstruct)
	if c.Config.Valid != nil && len(c.Config.Delegates) > 0 {
		n, err := network(c)
		errs = append(errs, err)
		if err == nil {
			d.listen()
			for _, err := range n.GC(c.Config.Valid) {
				errs = append(errs, failure.OfDelegate("GC", err))
			}
		}
	}
	return failure.Join(append(errs, c.Sweep(func() {}))...)
}

// status is STATUS. It includes the delegates' own STATUS.
func (d *Delegates) status(c *plugin.Call) error {
	if err := plugin.Status(c); err != nil || len(c.Config.Delegates) == 0 {
		return err
	}
	for n := range c.Config.Delegates {
		if err := runnable(c, n); err != nil {
			return plugin.NotReady(err, "")
		}
	}
	n, err := network(c)
	if err != nil {
		return plugin.NotReady(err, "")
	}
	d.listen()
	err = failure.OfDelegate("STATUS", n.Status())
	if err == nil || failure.Code(err) == failure.Limited {
		return err
	}
	return plugin.NotReady(err, "")
}
