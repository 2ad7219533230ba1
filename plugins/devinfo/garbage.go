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
// which is no error, stops it early; a [*types.Error] says everything that went wrong. Before
// each attachment rest is called.
func (p *Plugin) CollectDead(ctx context.Context, cniPath string, delegates bool, rest func(context.Context)) (g Garbage, err error) {
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
		case !p.dead(key, e):
		case len(e.Delegates) > 0 && !delegates:
			g.Left++
		default:
			done, err := p.collect(&config.Config{}, key, e, cniPath)
			errs = append(errs, err)
			if done && err == nil {
				g.Collected++
			}
		}
	}
	errs = append(errs, p.sweep(func() { g.Swept++ }))
	return g, translate(followedBy(nil, errs...))
}
