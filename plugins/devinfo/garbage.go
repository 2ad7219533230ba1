package plugin

import (
	"context"
	"fmt"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
)

// Garbage is what CollectDead has found.
type Garbage struct {
	Collected int // attachments that nobody could use any more, and that are gone
	Left      int // those that have delegates, and were left to the runtime
	Swept     int // files that no attachment had
}

// CollectDead deletes, as GC does, the attachments of all networks that nobody can use any
// more, and then sweeps. It is for a long-running caller that is not a runtime. If the
// node's delegates cannot be run, attachments with delegates are left. Only the end of ctx,
// which is no error, stops it early; a [*types.Error] says everything that went wrong.
func (p *Plugin) CollectDead(ctx context.Context, cniPath string, delegates bool) (g Garbage, err error) {
	keys, err := p.Journal.All()
	errs := []error{err}
	for _, key := range keys {
		if ctx.Err() != nil {
			break
		}
		e, err := p.corpse(key)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
		case e == nil:
		case len(e.Delegates) > 0 && !delegates:
			g.Left++
		default:
			if err := p.collect(&config.Config{}, key, cniPath); err != nil {
				errs = append(errs, err)
			} else {
				g.Collected++
			}
		}
	}
	errs = append(errs, p.sweep(func() { g.Swept++ }))
	return g, translate(followedBy(nil, errs...))
}

// corpse returns the entry of an attachment that nobody can use any more, else nil. An
// invalid entry, or a newer build's, does not show what it is about.
func (p *Plugin) corpse(key journal.Key) (*journal.Entry, error) {
	e, err := p.Journal.Get(key)
	if as[*store.CorruptError](err) || as[*journal.FormatError](err) || e == nil && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if ended, err := p.ended(e); err != nil || !ended {
		return nil, err
	}
	return e, nil
}
