package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/check"
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
	listed := make(map[types.GCAttachment]bool, len(cfg.Valid))
	for _, v := range cfg.Valid {
		listed[v] = true
	}
	keys, err := p.Journal.All()
	errs := []error{err}
	for _, key := range keys {
		if key.Network != cfg.Name || listed[types.GCAttachment{ContainerID: key.ContainerID, IfName: key.IfName}] {
			continue
		}
		e, err := p.Journal.Get(key)
		if err != nil && !as[*store.CorruptError](err) {
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
		} else if cfg.Valid != nil || p.stale(key, e) {
			_, err := p.collect(cfg, key, e, args.Path)
			errs = append(errs, err)
		}
	}
	if cfg.Valid != nil {
		errs = append(errs, p.gcDelegates(cfg, args.Path))
	}
	errs = append(errs, p.sweep(func() {}))
	return followedBy(nil, errs...)
}

// stale reports that nobody can use an attachment any more; in doubt, and if its entry is
// invalid, it is alive.
func (p *Plugin) stale(key journal.Key, e *journal.Entry) bool {
	if e == nil {
		return false
	}
	a := check.Checker{NetnsGone: link.NetnsGone, BootID: p.BootID}
	why, err := a.StaleReason(e)
	if err != nil {
		p.Log.Warn("cannot tell whether the attachment is stale", "attachment", key.String(), "error", err)
	}
	return err == nil && why != ""
}

// Garbage is what CollectStale has found.
type Garbage struct {
	Collected int // attachments that nobody could use any more, and that are gone
	Left      int // those that have delegates, and were left to the runtime
	Swept     int // files that no attachment had
}

// CollectStale deletes, as GC does, the attachments of all networks that nobody can use any
// more, and then sweeps. It is for a long-running caller that is not a runtime. If the
// node's delegates cannot be run, attachments with delegates are left. Only the end of ctx,
// which is no error, stops it early; a [*types.Error] says everything that went wrong. Before
// each attachment rest is called.
func (p *Plugin) CollectStale(ctx context.Context, cniPath string, delegates bool, rest func(context.Context)) (g Garbage, err error) {
	keys, err := p.Journal.All()
	errs := []error{err}
	for _, key := range keys {
		rest(ctx)
		if ctx.Err() != nil {
			break
		}
		e, err := p.Journal.Get(key)
		switch {
		case as[*store.CorruptError](err), as[*journal.FormatError](err): // it does not show what it is about
		case err != nil:
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
		case !p.stale(key, e):
		case len(e.Delegates) > 0 && !delegates:
			g.Left++
		default:
			done, err := p.collect(&config.Config{}, key, e, cniPath)
			errs = append(errs, err)
			if done {
				g.Collected++
			}
		}
	}
	errs = append(errs, p.sweep(func() { g.Swept++ }))
	return g, translate(followedBy(nil, errs...))
}

// Collect deletes one attachment as GC does, for a caller that is no runtime and has no
// configuration: the journal knows it. It deletes the very entry that the caller has
// judged; one that has been added again, or deleted, since then is left, and done is false.
// A [*types.Error] says all that went wrong.
func (p *Plugin) Collect(e *journal.Entry, cniPath string) (done bool, err error) {
	done, err = p.collect(&config.Config{}, e.Key, e, cniPath)
	return done, translate(err)
}

// Sweep removes what no attachment has: see sweep.
func (p *Plugin) Sweep() error { return translate(p.sweep(func() {})) }

// collect deletes one attachment by its journal entry, unless the entry has changed since the caller judged
// it. If the entry is corrupt, judged is nil, and the configuration and the leases show what there is to
// delete. The lock on the entry keeps other calls from adding or deleting the attachment while collect runs.
func (p *Plugin) collect(cfg *config.Config, key journal.Key, judged *journal.Entry, cniPath string) (done bool, err error) {
	cfg = &config.Config{Name: key.Network, Type: cfg.Type, CNIVersion: cfg.CNIVersion, Delegates: cfg.Delegates}
	c, _ := p.open(cfg, &Args{ContainerID: key.ContainerID, IfName: key.IfName, Path: cniPath}) // there are no CNI_ARGS
	e, corrupt, err := c.lock()
	defer e.Unlock()
	switch {
	case err != nil || e == nil: // its DEL has come
	case corrupt != (judged == nil) || !corrupt && !e.Same(judged):
		c.log.Info("not collected, because the attachment was added again")
	default:
		now := *e
		if corrupt {
			now = *c.reconstruct(e)
		} else if there, err := link.HasNetns(e.Netns); err != nil || !there || !e.OfBoot(p.BootID) || link.NetnsNamesProcess(e.Netns) {
			now.Netns = "" // for the delegates: the path leads nowhere, or may be another pod's
		}
		done, err = true, cleanup{call: c, entry: &now}.run()
	}
	if err != nil {
		return false, fmt.Errorf("attachment %s: %w", key, err)
	}
	return done, nil
}

// sweep removes what killed calls have left where no entry of the journal tells of it:
// leases, records, caches and temporary files. It calls removed for each.
func (p *Plugin) sweep(removed func()) error {
	swept := func(dir string) func(string) {
		return func(name string) {
			p.Log.Info("removed a leftover file", "directory", dir, "name", name)
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
	n, err := p.network(cfg, cniPath)
	if err != nil {
		return err
	}
	p.listen()
	errs := n.GC(cfg.Valid)
	for i, err := range errs {
		errs[i] = failed("GC", err)
	}
	return followedBy(nil, errs...)
}
