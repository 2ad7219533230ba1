package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/dra/state"
)

// Engine attaches the pods of this node to the networks of their claims. Its methods may be called
// concurrently.
type Engine struct {
	Options
	table    *table
	records  *records
	gate     *gate
	reports  *reports
	notices  *notices
	steps    *steps
	worker   *worker
	reserved *reservations
	metrics  *metrics
}

// Metadata writes the device metadata of a request (KEP-5304): a [*kubeletplugin.Helper] does.
type Metadata interface {
	UpdateRequestMetadata(ctx context.Context, namespace, claim string, uid types.UID, request string, devices []kubeletplugin.Device) error
}

// New reads the state directory and locks it for this process. It touches neither networks nor the
// runtime before [Engine.Run] and [Engine.StartSandbox].
func New(o Options) (*Engine, error) {
	o = o.withDefaults()
	kind := o.Driver + "/claim"
	if err := cdispec.CheckKind(kind); err != nil {
		return nil, fmt.Errorf("driver %q: %w", o.Driver, err)
	}
	files, err := state.Open(o.StateDir)
	if err != nil {
		return nil, err
	}
	e := &Engine{Options: o, table: newTable(o.Netns, o.BootID)}
	o.Node.Use(e.table)
	e.metrics = newMetrics(o.Metrics, e.Census)
	e.notices = &notices{notify: o.Notify, told: map[Notice]time.Time{}}
	e.reports = newReports(o, e.table)
	e.records = &records{Options: o, table: e.table, files: files, reports: e.reports}
	e.gate = &gate{Options: o, table: e.table, kind: kind, specs: store.Open(o.CDIDir)}
	e.steps = &steps{
		Options: o, table: e.table, records: e.records, gate: e.gate, reports: e.reports, notices: e.notices, metrics: e.metrics,
		cni: plugins{o},
	}
	e.worker = &worker{Options: o, table: e.table, steps: e.steps}
	e.reserved = &reservations{Options: o, table: e.table}
	if err := e.records.load(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// SetMetadata enables device metadata. Call it, if at all, before all other methods.
func (e *Engine) SetMetadata(m Metadata) { e.gate.metadata = m }

// Ready returns an error if the state directory cannot be written.
func (e *Engine) Ready() error { return e.records.files.Writable() }

// Close unlocks the state directory for another process. Call it after Run has returned.
func (e *Engine) Close() error {
	e.table.queue.ShutDown()
	e.reports.queue.ShutDown()
	return e.records.files.Close()
}

// Run does what is pending now, after each event, and every [Retries.Sweep], and sends status. It returns
// after ctx has ended and all work has: no CNI plugin is left running. It may be called once.
func (e *Engine) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { e.reports.run(ctx) })
	background.Go(e.worker.run)
	background.Go(func() { e.collect(ctx) })
	tick := time.NewTicker(e.Sweep)
	defer tick.Stop()
	for ctx.Err() == nil {
		e.table.sweep()
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	e.table.do(func() { e.table.ending = true })
	e.table.queue.ShutDown()
	background.Wait()
	close(e.table.over)
}

// collect ends records and leases of claims that nobody will unprepare, until ctx ends. It reads claims
// now and with each sweep, and looks for leases every [Retries.AbandonedEvery].
func (e *Engine) collect(ctx context.Context) {
	sweep, leases := time.NewTicker(e.Sweep), time.NewTicker(e.AbandonedEvery)
	defer sweep.Stop()
	defer leases.Stop()
	e.collectLeases()
	for ctx.Err() == nil {
		e.reserved.readIdle(ctx)
		select {
		case <-sweep.C:
		case <-leases.C:
			e.collectLeases()
		case <-ctx.Done():
		}
	}
}

func (e *Engine) collectLeases() {
	if err := e.Node.Leases.Collect(); err != nil {
		e.Log.Error("cannot release leases of claims without a record", "error", err)
	}
}

// Census counts the attachments by phase, the claims whose status is owed, and the unreadable records.
func (e *Engine) Census() Census { return e.table.census() }
