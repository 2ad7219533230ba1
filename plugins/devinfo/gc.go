package plugin

import (
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
)

// GC deletes, as DEL does, the attachments of this network that the runtime does not list,
// lets the delegates collect their own garbage, and sweeps what no attachment owns. For a
// runtime that gives no list, as CRI-O and cnitool do when they know of none, it deletes
// only those that nobody can use any more, and asks no delegate, which might take that for
// an empty list. A failure does not stop the rest; all errors are reported.
func (p *Plugin) GC(args *Args) error {
	cfg, err := p.parse(args)
	if err != nil {
		return err
	}
	for _, problem := range cfg.Problems {
		if problem.Key == "cni.dev/valid-attachments" {
			return problem
		}
	}
	p.lenient(cfg)
	unwanted := p.dead
	if cfg.Valid != nil {
		unwanted = unlisted(cfg.Valid)
	}
	keys, err := p.Journal.List(cfg.Name)
	errs := []error{err}
	for _, key := range keys {
		switch collect, err := unwanted(key); {
		case err != nil:
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
		case collect:
			errs = append(errs, p.collect(cfg, key, args.Path))
		}
	}
	if cfg.Valid != nil {
		errs = append(errs, p.gcDelegates(cfg, args.Path))
	}
	errs = append(errs, p.sweep(func() {}))
	return followedBy(nil, errs...)
}

// unlisted says which attachments a runtime does not list.
func unlisted(valid []config.ValidAttachment) func(journal.Key) (bool, error) {
	listed := make(map[config.ValidAttachment]bool, len(valid))
	for _, v := range valid {
		listed[v] = true
	}
	return func(key journal.Key) (bool, error) {
		return !listed[config.ValidAttachment{ContainerID: key.ContainerID, IfName: key.IfName}], nil
	}
}

// dead reports that nobody can use an attachment any more; in doubt it is alive.
func (p *Plugin) dead(key journal.Key) (bool, error) {
	e, err := p.Journal.Get(key)
	switch {
	case as[*store.CorruptError](err):
		return false, nil
	case err != nil || e == nil:
		return false, err
	}
	ended, err := p.ended(e)
	if err != nil {
		p.Log.Warn("left alone", "attachment", key.String(), "error", err)
	}
	return ended, nil
}

func (p *Plugin) ended(e *journal.Entry) (bool, error) {
	a := audit.Auditor{NetnsGone: link.NetnsGone, BootID: p.BootID}
	end, _, err := a.Ended(e)
	return end != "", err
}

// Collect deletes one attachment as GC does, for a caller that is no runtime and has no
// configuration: the journal knows it. A [*types.Error] says all that went wrong.
func (p *Plugin) Collect(key journal.Key, cniPath string) error {
	return translate(p.collect(&config.Config{}, key, cniPath))
}

// Sweep removes what no attachment has: see sweep.
func (p *Plugin) Sweep() error { return translate(p.sweep(func() {})) }

// collect deletes one attachment by what the journal knows of it; where its entry
// cannot be read, by the configuration and the claims.
func (p *Plugin) collect(cfg *config.Config, key journal.Key, cniPath string) error {
	own := &config.Config{Name: key.Network, Type: cfg.Type, CNIVersion: cfg.CNIVersion, Delegates: cfg.Delegates}
	c, err := p.open(own, &Args{ContainerID: key.ContainerID, IfName: key.IfName, Path: cniPath})
	if err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	e, corrupt, err := c.entry()
	if corrupt {
		e, err = c.reconstruct(&Args{}, corrupt)
	}
	if err == nil && e != nil { // else its DEL has come
		now := *e
		now.Netns = p.namespace(e)
		if !corrupt {
			c.still = func() error { return c.unchanged(e) }
			c.cni.exec.Still = c.still
		}
		err = c.undo(&now, c.gone)
	}
	if err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	return nil
}

// unchanged is the error that an attachment has been added again, or deleted, since its
// entry was read.
func (c *call) unchanged(e *journal.Entry) error {
	same, err := c.Journal.Unchanged(e)
	if err == nil && !same {
		err = fail(codeTryAgain, errors.New("left alone: it was added again, or deleted, meanwhile"), "")
	}
	return err
}

// namespace is the network namespace that the delegates may be told of: none where the
// path may be another's by now, or leads nowhere.
func (p *Plugin) namespace(e *journal.Entry) string {
	if e.Netns == "" || !e.OfBoot(p.BootID) || link.NetnsNamesProcess(e.Netns) {
		return ""
	}
	if there, err := link.HasNetns(e.Netns); err != nil || !there {
		return ""
	}
	return e.Netns
}

// sweep removes what killed calls have left where no entry of the journal tells of it:
// claims and temporary files. It calls removed for each.
func (p *Plugin) sweep(removed func()) error {
	swept := func(dir string) func(string) {
		return func(name string) {
			p.Log.Info("swept", "directory", dir, "name", name)
			removed()
		}
	}
	return errors.Join(
		p.Journal.Sweep(swept(p.Node.StateDir)),
		p.Infos.Sweep(swept(p.Node.DeviceInfoDir)),
		p.Specs.Sweep(swept(p.Node.CDIDir)))
}

// gcDelegates passes GC on.
func (p *Plugin) gcDelegates(cfg *config.Config, cniPath string) error {
	if len(cfg.Delegates) == 0 {
		return nil
	}
	p.listen()
	return p.delegation(cniPath, journal.Key{Network: cfg.Name}).gc(cfg)
}
