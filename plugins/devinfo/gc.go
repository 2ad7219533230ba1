package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
)

// GC deletes the attachments of this network that the runtime does not list, as by
// DEL, then lets the delegates collect their own garbage. Nothing stops the rest;
// all errors are reported.
func (p *Plugin) GC(args *skel.CmdArgs) error {
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
	if cfg.Valid == nil {
		return fail(codeConfig, errors.New("cni.dev/valid-attachments is missing"),
			"GC removes only what an explicit list, [] included, does not name")
	}
	keys, err := p.Journal.List(cfg.Name)
	errs := []error{err}
	for _, key := range keys {
		if !cfg.Lists(key.ContainerID, key.IfName) {
			errs = append(errs, p.collect(cfg, key, args.Path, false))
		}
	}
	errs = append(errs, p.gcDelegates(cfg, args.Path))
	return followedBy(nil, errs...)
}

// Collect deletes one attachment as GC does, for who is no runtime and has no
// configuration: the journal knows it. A [*types.Error] says all that went wrong.
// Nothing is asked: the caller has made sure that the network namespace is gone, and
// what is at its path now is another's.
func (p *Plugin) Collect(key journal.Key, cniPath string) error {
	return translate(p.collect(&config.Config{}, key, cniPath, true))
}

// collect deletes one attachment by what the journal knows of it; where its entry
// cannot be read, by the configuration and the claims on files. The delegates are
// not told of a network namespace that is gone, as all of an older boot are.
func (p *Plugin) collect(cfg *config.Config, key journal.Key, cniPath string, gone bool) error {
	own := &config.Config{Name: key.Network, Type: cfg.Type, CNIVersion: cfg.CNIVersion, Delegates: cfg.Delegates}
	c, err := p.open(own, &skel.CmdArgs{ContainerID: key.ContainerID, IfName: key.IfName, Path: cniPath})
	if err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	e, err := c.entry(key)
	if err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	var claimed []string
	if e == nil {
		c.skipUnrunnable()
		e = c.reconstruct(&skel.CmdArgs{})
		if claimed, err = c.Journal.Claims(key); err != nil {
			return fmt.Errorf("attachment %s: %w", key, err)
		}
		if e.CDI, err = c.claimedSpec(); err != nil {
			return fmt.Errorf("attachment %s: %w", key, err)
		}
	}
	if gone || e.BootID != c.BootID { // what is at its path now is another's
		e.Netns = ""
	}
	errs := c.cni.del(e, runtimeConf(e))
	errs = append(errs, c.removeFiles(e, claimed...)...)
	if err := c.forget(e, errs); err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	for _, name := range claimed {
		if err := c.Journal.Tidy(key, name); err != nil {
			return fmt.Errorf("attachment %s: %w", key, err)
		}
	}
	return nil
}

// gcDelegates passes GC on. libcni's own cache is empty, so that it deletes
// nothing of what the journal has just deleted.
func (p *Plugin) gcDelegates(cfg *config.Config, cniPath string) error {
	if len(cfg.Delegates) == 0 {
		return nil
	}
	plugins, err := list(cfg)
	if err != nil {
		return err
	}
	valid := make([]types.GCAttachment, len(cfg.Valid))
	for n, v := range cfg.Valid {
		valid[n] = types.GCAttachment{ContainerID: v.ContainerID, IfName: v.IfName}
	}
	p.listen()
	err = p.delegation(cniPath, journal.Key{Network: cfg.Name}).GCNetworkList(context.Background(), plugins, &libcni.GCArgs{ValidAttachments: valid})
	if err != nil {
		return fmt.Errorf("delegates: GC: %w", err)
	}
	return nil
}
