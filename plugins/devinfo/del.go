package plugin

import (
	"cmp"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/journal"
)

// Del undoes ADD according to the journal entry, see cleanup. It succeeds if the attachment does not exist, and
// accepts arguments that ADD refuses.
func (p *Plugin) Del(args *Args) error {
	cfg, err := p.parse(args)
	if err != nil {
		return err
	}
	p.lenient(cfg)
	if err := ownNetns(args); err != nil { // the delegates would look for the pod's interface in the host's namespace
		p.Log.Warn("treating the network namespace as gone", "error", err)
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
		c.log.Warn("no journal entry", "error", err) // ADD refuses such long names, so it recorded no entry
	} else if err != nil {
		return err
	}
	defer recorded.Unlock()
	e := recorded
	if recorded == nil || corrupt {
		e = c.reconstruct(recorded)
	}
	now := *e
	now.Netns = args.Netns // the runtime's path is current; it is empty if the namespace is gone
	clean := cleanup{call: c, entry: &now}
	if err := clean.addNamed(); err != nil {
		return err
	}
	return clean.run()
}

// addNamed adds the device-info file that the runtime names to the entry. If the entry already has a different
// file, addNamed removes the named one.
func (c cleanup) addNamed() error {
	name, err := c.infoFileName()
	if err != nil && codeOf(err) == codeConfig { // ADD refuses such a path, so it wrote no file there
		c.log.Warn("no device-info file removed", "error", err)
		return nil
	}
	if err != nil || name == "" || name == c.entry.File {
		return err
	}
	if c.entry.File == "" {
		c.entry.File, c.entry.Dir = name, c.plugin.Node.DeviceInfoDir
		return nil
	}
	c.entry = &journal.Entry{Dir: c.plugin.Node.DeviceInfoDir, File: name}
	return c.plugin.Journal.Alone(c.removeFile)
}

// reconstruct returns the entry that ADD would have written. corrupt has the facts of the leases; nil = no entry.
func (c *call) reconstruct(corrupt *journal.Entry) *journal.Entry {
	runnable := *c.cfg
	runnable.Delegates = nil
	for n, d := range c.cfg.Delegates { // ADD refuses delegates that cannot run, so they have not run
		if err := c.plugin.checkRunnable(c.cfg, n, c.args.Path); err != nil {
			c.log.Warn("not running a delegate's DEL", "error", err)
		} else {
			runnable.Delegates = append(runnable.Delegates, d)
		}
	}
	spec, err := c.wantedSpec()
	if err != nil {
		c.log.Warn("ignoring the CDI spec", "error", err) // ADD refuses such a spec, so it wrote none
	}
	e := cmp.Or(corrupt, &journal.Entry{Key: c.key})
	e.Delegates, e.CNIVersion, e.Args = delegateConfigs(&runnable), c.cfg.CNIVersion, c.args.CNIArgs
	e.CapabilityArgs, e.Result = c.capabilityArgs(), c.cfg.PrevResult
	if e.CDI.File == "" {
		e.CDI = spec.file
	}
	return e
}
