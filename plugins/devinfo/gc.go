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
			errs = append(errs, p.collect(cfg, key, args))
		}
	}
	errs = append(errs, p.gcDelegates(cfg, args.Path))
	return followedBy(nil, errs...)
}

// collect deletes one attachment by what the journal knows of it; where its entry
// cannot be read, by the configuration and the claims on files.
func (p *Plugin) collect(cfg *config.Config, key journal.Key, args *skel.CmdArgs) error {
	own := &config.Config{Name: key.Network, Type: cfg.Type, CNIVersion: cfg.CNIVersion, Delegates: cfg.Delegates}
	c, err := p.open(own, &skel.CmdArgs{ContainerID: key.ContainerID, IfName: key.IfName, Path: args.Path})
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
