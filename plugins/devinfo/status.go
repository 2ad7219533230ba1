package plugin

import (
	"fmt"
	"io/fs"
)

// Status returns an error if ADD could not succeed now. It checks the configuration, the directories, sysfs and the
// delegates' own STATUS.
func (p *Plugin) Status(args *Args) error {
	cfg, err := p.parse(args)
	if err != nil {
		return err
	}
	if err := p.strict(cfg); err != nil {
		return notReady(err, "")
	}
	if err := p.Infos.Writable(); err != nil {
		return notReady(fmt.Errorf("device-info directory: %w", err), "make it writable, or set deviceInfoDir in the node settings")
	}
	if err := p.Journal.Writable(); err != nil {
		return notReady(fmt.Errorf("state directory: %w", err), "make it writable, on a local disk, or set stateDir in the node settings")
	}
	if cfg.CDI != nil {
		if err := p.Specs.Writable(); err != nil {
			return notReady(fmt.Errorf("CDI directory: %w", err), "make it writable, or set cdiDir in the node settings")
		}
	}
	if _, err := fs.Stat(p.Finder.Sys.Files(), "bus"); err != nil {
		return notReady(fmt.Errorf("%s is not a sysfs: %w", p.Node.Sysfs, err), "mount sysfs there, or set sysfs in the node settings")
	}
	if len(cfg.Delegates) == 0 {
		return nil
	}
	for n := range cfg.Delegates {
		if err := p.checkRunnable(cfg, n, args.Path); err != nil {
			return notReady(err, "")
		}
	}
	n, err := p.network(cfg, args.Path)
	if err != nil {
		return notReady(err, "")
	}
	p.listen()
	err = delegateError("STATUS", n.Status())
	if err == nil || codeOf(err) == codeLimited {
		return err
	}
	return notReady(err, "")
}

func notReady(err error, remedy string) error { return fail(codeNotAvailable, err, remedy) }
