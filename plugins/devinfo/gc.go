package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/attachment"
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
			errs = append(errs, p.collect(key, args.Path))
		}
	}
	errs = append(errs, p.gcDelegates(cfg, args.Path))
	return followedBy(nil, errs...)
}

// collect deletes one attachment by what the journal knows of it.
func (p *Plugin) collect(key journal.Key, cniPath string) error {
	c := &call{
		Plugin: p, key: key, cni: newDelegation(p.Node.StateDir, cniPath),
		log: p.Log.With("attachment", key.String()),
	}
	e, err := c.entry(key)
	if err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
	}
	if e == nil {
		return c.Journal.Drop(key)
	}
	c.cfg = &config.Config{Name: key.Network, CNIVersion: e.CNIVersion}
	c.att, err = attachment.New(c.cfg, attachment.Args{
		ContainerID: key.ContainerID, Netns: e.Netns, IfName: key.IfName, CNIArgs: e.Args,
	}, p.Node.DeviceInfoDir)
	if err != nil {
		c.log.Warn("ignored", "error", err)
	}
	errs := c.cni.del(e, runtimeConf(e, c.att.Args))
	errs = append(errs, c.removeFiles(e)...)
	if err := c.forget(errs); err != nil {
		return fmt.Errorf("attachment %s: %w", key, err)
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
	err = newDelegation(p.Node.StateDir, cniPath).GCNetworkList(context.Background(), plugins, &libcni.GCArgs{ValidAttachments: valid})
	if err != nil {
		return fmt.Errorf("delegates: GC: %w", err)
	}
	return nil
}
