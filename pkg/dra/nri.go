package dra

import (
	"context"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"devinfo-cni.io/pkg/nri"
)

// Configure wants the events of sandboxes.
func (a *Agent) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	a.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return api.MustParseEventMask("RunPodSandbox,StopPodSandbox,RemovePodSandbox"), nil
}

// ServeNRI keeps the agent connected to the runtime at an NRI socket, as the plugin of
// that two-digit index, until ctx ends. A runtime that is away is no error.
func (a *Agent) ServeNRI(ctx context.Context, socket, index string) error {
	return nri.Plugin{Handler: a, Name: a.Driver, Index: index, Socket: socket, FailRequests: true, Connected: a.connected, Log: a.Log}.Serve(ctx)
}

// connected also notes that from a disconnection on sandboxes end without our being told.
func (a *Agent) connected(on bool) {
	if !on {
		a.mu.Lock()
		a.synced = false
		a.mu.Unlock()
	}
	a.Metrics.Connected(on)
}
