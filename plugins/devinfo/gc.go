package plugin

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
)

// GC deletes the attachments of this network that the runtime does not list, as DEL does. It also runs the
// delegates' GC, and sweeps leftover files. A failure does not stop the rest; all errors are reported.
//
// CRI-O and cnitool pass no list if they know no attachments. GC then deletes only stale attachments and does
// not run the delegates' GC, because a delegate might take a missing list for an empty one.
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

// stale reports whether an attachment can no longer be in use. It returns false if that is unknown or e is nil.
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

// Garbage is the result of CollectStale.
type Garbage struct {
	Collected int // stale attachments that were deleted
	Left      int // stale attachments with delegates, which only the runtime can delete
	Swept     int // leftover files that were removed
}

// CollectStale deletes the stale attachments of all networks, and then sweeps. It is for a long-running caller
// other than a runtime. If delegates is false, attachments with delegates are kept, because the caller cannot
// run delegates. CollectStale calls rest before each attachment. It stops early, without an error, when ctx
// ends. A [*types.Error] contains all failures.
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
		case as[*store.CorruptError](err), as[*journal.FormatError](err): // the entry cannot be read, so it is kept
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

// Collect deletes one attachment, for a caller that is not a runtime and only has the journal entry. If the
// attachment was deleted or added again since the caller read the entry, Collect leaves it and returns false. A
// [*types.Error] contains all failures.
func (p *Plugin) Collect(e *journal.Entry, cniPath string) (done bool, err error) {
	done, err = p.collect(&config.Config{}, e.Key, e, cniPath)
	return done, translate(err)
}

// Sweep removes leftover files of killed calls.
func (p *Plugin) Sweep() error { return translate(p.sweep(func() {})) }

// collect deletes one attachment by its journal entry, unless the entry has changed since the caller read it.
// judged is the entry that the caller read; nil = it is corrupt, so the configuration and the leases show what to
// delete. The lock on the entry prevents an ADD or DEL of the attachment meanwhile.
func (p *Plugin) collect(cfg *config.Config, key journal.Key, judged *journal.Entry, cniPath string) (done bool, err error) {
	cfg = &config.Config{Name: key.Network, Type: cfg.Type, CNIVersion: cfg.CNIVersion, Delegates: cfg.Delegates}
	args := &Args{Args: attachment.Args{ContainerID: key.ContainerID, IfName: key.IfName}, Path: cniPath}
	c, _ := p.open(cfg, args) // no error, because CNI_ARGS are empty
	e, corrupt, err := c.lock()
	defer e.Unlock()
	switch {
	case err != nil || e == nil: // DEL has removed it
	case corrupt != (judged == nil) || !corrupt && !e.Same(judged):
		c.log.Info("not collected, because the attachment was added again")
	default:
		now := *e
		if corrupt {
			now = *c.reconstruct(e)
		} else if there, err := link.HasNetns(e.Netns); err != nil || !there || !e.OfBoot(p.BootID) || link.NetnsNamesProcess(e.Netns) {
			now.Netns = "" // the delegates must not get the path: it leads nowhere, or perhaps to another pod's namespace
		}
		done, err = true, cleanup{call: c, entry: &now}.run()
	}
	if err != nil {
		return false, fmt.Errorf("attachment %s: %w", key, err)
	}
	return done, nil
}

// sweep removes files that killed calls left and that no journal entry mentions: leases, records, caches and
// temporary files. It calls removed for each.
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
		errs[i] = delegateError("GC", err)
	}
	return followedBy(nil, errs...)
}
