package claim

import (
	"context"
	"sync"
	"time"
)

// Run executes the pending steps of all claims, after events and every [Retries.Sweep], and writes their status. It
// returns after ctx has ended and all CNI plugins have exited. Call it only once.
func (e *Engine) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { e.reports.run(ctx) })
	background.Go(e.worker.run)
	background.Go(func() { e.collect(ctx) })
	for tick := time.Tick(e.Options.Sweep); ctx.Err() == nil; {
		e.table.sweep()
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	e.table.do(func() { e.table.stopping = true })
	e.table.queue.ShutDown()
	background.Wait()
	close(e.table.stopped)
}

// collect periodically removes records and leases of claims that the kubelet will not unprepare, until ctx ends.
func (e *Engine) collect(ctx context.Context) {
	sweep, leases := time.Tick(e.Options.Sweep), time.Tick(e.Options.UndeletedEvery)
	e.collectLeases()
	for ctx.Err() == nil {
		e.readIdle(ctx)
		select {
		case <-sweep:
		case <-leases:
			e.collectLeases()
		case <-ctx.Done():
		}
	}
}

func (e *Engine) collectLeases() {
	if err := e.Node.Leases.Collect(); err != nil {
		e.Options.Log.Error("cannot release leases of deleted claims", "error", err)
	}
}
