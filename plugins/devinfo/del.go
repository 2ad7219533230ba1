package plugin

import (
	"cmp"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
)

// Del undoes ADD, by the journal's entry: see undo. What is gone already is success, and
// nothing that ADD would refuse makes it fail.
func (p *Plugin) Del(args *Args) error {
	cfg, err := p.parse(args)
	if err != nil {
		return err
	}
	p.lenient(cfg)
	if err := ownNetns(args); err != nil { // the delegates would look for the pod's interface among ours
		p.Log.Warn("taken as gone", "error", err)
		args.Netns = ""
	}
	c, err := p.open(cfg, args)
	if err != nil {
		c.log.Warn("CNI_ARGS ignored", "error", err)
	}
	if c.nested() {
		c.log.Warn("nothing done: devinfo runs as its own delegate")
		return nil
	}
	recorded, corrupt, err := c.lock()
	if as[*store.NameError](err) {
		c.log.Warn("no journal entry", "error", err) // ADD refuses names this long
	} else if err != nil {
		return err
	}
	defer recorded.Unlock()
	e := recorded
	if recorded == nil || corrupt {
		e = c.reconstruct(recorded)
	}
	now := *e
	now.Netns = args.Netns // the runtime knows best: empty once it is gone
	if err := c.addNamed(&now); err != nil {
		return err
	}
	return c.undo(&now, c.removeFile)
}

// addNamed adds to the entry the device-info file that the runtime names now, if it has
// none; if it has another one, that goes now.
func (c *call) addNamed(e *journal.Entry) error {
	name, err := c.fileName()
	if err != nil && codeOf(err) == codeConfig { // ADD refuses it
		c.log.Warn("no device-info file removed", "error", err)
		return nil
	}
	if err != nil || name == "" || name == e.File {
		return err
	}
	if e.File == "" {
		e.File, e.Dir = name, c.Node.DeviceInfoDir
		return nil
	}
	return c.Journal.Alone(func() error {
		ours, err := c.mayRemove(journal.OfFile, name)
		if err == nil && ours {
			err = c.removeFile(&journal.Entry{Dir: c.Node.DeviceInfoDir, File: name})
		}
		return err
	})
}

// reconstruct makes the entry that ADD would have written, for an attachment that the
// journal does not know. Where its entry is there but corrupt, its leases tell what else it
// has.
func (c *call) reconstruct(corrupt *journal.Entry) *journal.Entry {
	c.skipUnrunnable() // ADD refuses them, and may well have done so
	spec, _, err := c.cdiSpec()
	if err != nil {
		c.log.Warn("no CDI spec", "error", err) // ADD refuses it
	}
	e := cmp.Or(corrupt, &journal.Entry{Key: c.key})
	e.Delegates, e.CNIVersion, e.Args = children(c.cfg), c.cfg.CNIVersion, c.args.Args
	e.CapabilityArgs, e.Result = c.capabilityArgs(), c.cfg.PrevResult
	if e.CDI.File == "" {
		e.CDI = spec
	}
	return e
}

// skipUnrunnable takes the delegates out of the configuration that cannot be run.
func (c *call) skipUnrunnable() {
	var runnable []config.Delegate
	for n, d := range c.cfg.Delegates {
		if err := c.runnable(c.cfg, n, c.args.Path); err != nil {
			c.log.Warn("DEL of a delegate not run", "error", err)
		} else {
			runnable = append(runnable, d)
		}
	}
	c.cfg.Delegates = runnable
}
