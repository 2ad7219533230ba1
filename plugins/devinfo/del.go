package plugin

import (
	"errors"
	"syscall"

	"github.com/containernetworking/cni/pkg/skel"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
)

// Del undoes ADD: the delegates in reverse, the CDI spec, the device-info file, the
// journal entry. What is gone already is success, and nothing that ADD would refuse makes
// it fail. After a delegate's failure the rest is done all the same; the entry
// stays, so that the retry knows what to finish.
func (p *Plugin) Del(args *skel.CmdArgs) error {
	cfg, err := p.parse(args)
	if err != nil {
		return err
	}
	p.lenient(cfg)
	if err := ownNetns(args); err != nil { // the delegates would look for the pod's interface among ours
		p.Log.Warn("taken as gone", "error", err)
		args.Netns = "" // skel asks the same of it when all is done
	}
	c, err := p.open(cfg, args)
	if err != nil {
		c.log.Warn("ignored", "error", err)
	}
	if c.nested() {
		c.log.Warn("nothing done: devinfo runs as its own delegate")
		return nil
	}
	e, unread := c.entry(c.key)
	if as[*store.NameError](unread) {
		c.log.Warn("no journal entry", "error", unread) // ADD refuses names this long
		unread = nil
	}
	if e == nil {
		c.skipUnrunnable() // ADD refuses them, and may well have done so
		e = c.reconstruct(args)
	}
	e.Netns = args.Netns // the runtime knows best: empty once it is gone
	errs := c.cni.del(e, runtimeConf(e))
	errs = append(errs, c.removeFiles(e)...)
	return c.forget(e, append(errs, unread))
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

// reconstruct makes the entry that ADD would have written, for an attachment that
// the journal has lost.
func (c *call) reconstruct(args *skel.CmdArgs) *journal.Entry {
	delegates, err := children(c.cfg)
	if err != nil {
		c.log.Warn("delegates ignored", "error", err)
	}
	spec, _, err := c.spec()
	if err != nil {
		c.log.Warn("no CDI spec", "error", err) // ADD refuses it
	}
	return &journal.Entry{
		Key: c.key, Delegates: delegates, CNIVersion: c.cfg.CNIVersion, Args: args.Args,
		CapabilityArgs: c.capabilityArgs(), Result: c.cfg.PrevResult, CDI: spec,
	}
}

// removeFiles removes the CDI spec, the file that the runtime names, the one that the
// journal recorded, and those named. None of another attachment's, and but for the
// spec only files in the device-info directory.
func (c *call) removeFiles(e *journal.Entry, names ...string) (errs []error) {
	errs = append(errs, c.removeSpec(e.CDI))
	name, err := c.fileName()
	if err != nil {
		c.log.Warn("left alone", "error", err)
	} else if name != "" {
		names = append(names, name)
	}
	if e.File != "" {
		if recorded, err := c.Infos.Name(e.Path()); err != nil {
			c.log.Warn("left alone: the node setting deviceInfoDir has changed", "file", e.Path())
		} else if recorded != name {
			names = append(names, recorded)
		}
	}
	for _, name := range names {
		if name == e.File && e.BootID == c.BootID { // the entry is this boot's: so is its claim on the file
			errs = append(errs, c.removeFile(name))
			continue
		}
		owner, owned, err := c.Journal.Owner(name)
		if err == nil && owned && owner != e.Key {
			c.log.Warn("left alone: the file is another attachment's", "file", name, "owner", owner)
			continue
		}
		errs = append(errs, err, c.removeFile(name))
	}
	return errs
}

// removeFile leaves a directory in the file's place alone: ADD has refused it.
func (c *call) removeFile(name string) error {
	err := c.Infos.Remove(name)
	if errors.Is(err, syscall.EISDIR) {
		c.log.Warn("left alone", "error", err)
		return nil
	}
	return err
}

// forget drops the journal entry if all went well, else it reports what did not.
func (c *call) forget(e *journal.Entry, errs []error) error {
	if err := followedBy(nil, errs...); err != nil {
		return err
	}
	if err := c.Journal.Forget(e); err != nil && !as[*store.NameError](err) {
		return err
	}
	name, err := c.fileName()
	if err != nil || name == "" || name == e.File {
		return nil // removeFiles has warned of it
	}
	return c.Journal.Tidy(c.key, name)
}
