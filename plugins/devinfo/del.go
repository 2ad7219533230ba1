package plugin

import (
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
		c.log.Warn("ignored", "error", err)
	}
	if c.nested() {
		c.log.Warn("nothing done: devinfo runs as its own delegate")
		return nil
	}
	recorded, corrupt, err := c.entry()
	switch {
	case as[*store.NameError](err):
		c.log.Warn("no journal entry", "error", err) // ADD refuses names this long
	case err != nil:
		return err
	}
	e, err := c.owned(recorded, corrupt, args)
	if err != nil {
		return err
	}
	return c.undo(e, c.gone)
}

// owned is the entry to undo on DEL: the recorded one, or else what can be reconstructed,
// and the file that the runtime names now.
func (c *call) owned(recorded *journal.Entry, corrupt bool, args *Args) (*journal.Entry, error) {
	e := recorded
	if e == nil {
		var err error
		if e, err = c.reconstruct(args, corrupt); err != nil {
			return nil, err
		}
	}
	now := *e
	now.Netns = args.Netns // the runtime knows best: empty once it is gone
	name, err := c.fileName()
	switch {
	case err != nil && codeOf(err) == codeConfig: // ADD refuses it
		c.log.Warn("left alone", "error", err)
	case err != nil:
		return nil, err
	case name != "" && name != e.File:
		now.Former = append(now.Former[:len(now.Former):len(now.Former)], journal.Names{File: name, Dir: c.Node.DeviceInfoDir})
	}
	return &now, nil
}

// reconstruct makes the entry that ADD would have written, for an attachment that the
// journal does not know. Where its entry is there but corrupt, the claims tell what else
// it may own.
func (c *call) reconstruct(args *Args, corrupt bool) (*journal.Entry, error) {
	c.unrecorded = !corrupt
	c.skipUnrunnable() // ADD refuses them, and may well have done so
	delegates, err := children(c.cfg)
	if err != nil {
		c.log.Warn("delegates ignored", "error", err)
	}
	spec, _, err := c.spec()
	if err != nil {
		c.log.Warn("no CDI spec", "error", err) // ADD refuses it
	}
	e := &journal.Entry{
		Key: c.key, Delegates: delegates, CNIVersion: c.cfg.CNIVersion, Args: args.Args,
		CapabilityArgs: c.capabilityArgs(), Result: c.cfg.PrevResult, CDI: spec,
	}
	if corrupt {
		e.Former, err = c.claimed()
	} else {
		e.Former, err = c.claimedSockets() // of which no configuration tells
	}
	return e, err
}

// claimed are the names that the attachment has claimed in the journal.
func (c *call) claimed() (list []journal.Names, err error) {
	files, err := c.Journal.Claims(c.key)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		list = append(list, journal.Names{File: file, Dir: c.Node.DeviceInfoDir})
	}
	specs, err := c.Journal.SpecClaims(c.key)
	if err != nil {
		return nil, err
	}
	for _, spec := range specs {
		list = append(list, journal.Names{CDI: journal.CDI{Dir: c.Node.CDIDir, File: spec}})
	}
	dirs, err := c.claimedSockets()
	return append(list, dirs...), err
}

// claimedSockets are the socket directories that the attachment has claimed.
func (c *call) claimedSockets() (list []journal.Names, err error) {
	dirs, err := c.Journal.SocketClaims(c.key)
	if as[*store.NameError](err) { // ADD refuses such names
		return nil, nil
	}
	for _, dir := range dirs {
		list = append(list, journal.Names{SocketDir: dir})
	}
	return list, err
}

// skipUnrunnable takes the delegates out of the configuration that cannot be run.
func (c *call) skipUnrunnable() {
	var runnable []config.Delegate
	for n, d := range c.cfg.Delegates {
		if err := c.runnable(n); err != nil {
			c.log.Warn("ignored", "error", err)
		} else {
			runnable = append(runnable, d)
		}
	}
	c.cfg.Delegates = runnable
}
