package claim

import (
	"context"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/apimachinery/pkg/util/wait"

	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/dra/devices"
)

// Run executes the pending steps of all claims, after events and every [Retries.Sweep], and writes their status. It
// returns after ctx has ended and all CNI plugins have exited. Call it only once.
func (e *Engine) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { e.reports.run(ctx) })
	background.Go(e.worker.run)
	background.Go(func() { wait.UntilWithContext(ctx, e.readIdle, e.Options.Sweep) })
	background.Go(func() { wait.UntilWithContext(ctx, e.collectLeases, e.Options.UndeletedEvery) })
	wait.UntilWithContext(ctx, func(context.Context) { e.table.sweep() }, e.Options.Sweep)
	e.table.do(func() { e.table.stopping = true })
	e.table.queue.ShutDown()
	background.Wait()
	close(e.table.stopped)
}

func (e *Engine) collectLeases(context.Context) {
	if err := devices.CollectLeases(e.Options.Devices.Journal, e.table.isOnRecord); err != nil {
		e.Options.Log.Error("cannot release leases of deleted claims", "error", err)
	}
}

// ServeNRI keeps the engine connected to the runtime's NRI socket until ctx ends. index has two digits.
func (e *Engine) ServeNRI(ctx context.Context, socket, index string) {
	o := e.Options
	nri.Plugin{Handler: e, Name: o.Driver, Index: index, Socket: socket, Connected: e.SetConnected, Log: o.Log}.Serve(ctx)
}

// Configure subscribes to the start and end of sandboxes, and to containers.
func (e *Engine) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	e.Options.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return api.MustParseEventMask("RunPodSandbox,StopPodSandbox,RemovePodSandbox,CreateContainer"), nil
}

// SetConnected records whether NRI is connected. While it is not, the engine misses the end of sandboxes.
func (e *Engine) SetConnected(on bool) {
	e.table.do(func() { e.table.synced = e.table.synced && on })
	e.metrics.connected.Set(map[bool]float64{true: 1}[on])
}

// Connected reports whether NRI is connected and the runtime has listed its sandboxes. Before the list, a sandbox may start
// without a call of the engine, and then is in the list.
func (e *Engine) Connected() bool {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	return e.table.synced
}
