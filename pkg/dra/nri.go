package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
)

// Configure wants the events of sandboxes, and of containers that are made.
func (a *Agent) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	a.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	if a.Validator != nil && a.Metrics.Validator != nil {
		a.Metrics.Validator(a.Validator(runtime, version))
	}
	return api.MustParseEventMask("RunPodSandbox,StopPodSandbox,RemovePodSandbox,CreateContainer"), nil
}

// The back-off between two tries to connect.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 15 * time.Second
	handshake    = 20 * time.Second
)

// ServeNRI keeps the agent connected to the runtime at an NRI socket, as the plugin of
// that two-digit index, until ctx ends. A runtime that is away is no error.
func (a *Agent) ServeNRI(ctx context.Context, socket, index string) error {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := a.serveOnce(ctx, socket, index)
		a.disconnected()
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > longestPause {
			pause = firstPause
		}
		a.Log.Warn("not connected to the container runtime", "socket", socket, "retryIn", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, longestPause)
	}
	return context.Cause(ctx)
}

func (a *Agent) serveOnce(ctx context.Context, socket, index string) error {
	// A stub cannot be used again after some of its errors. A request that fails for
	// want of an answer fails the sandbox, where the runtime knows how to; a plugin that
	// does not answer is disconnected, so that it does not stop the whole node.
	s, err := stub.New(a, stub.WithPluginName(a.Driver), stub.WithPluginIdx(index), stub.WithSocketPath(socket),
		stub.WithFailurePolicy(&api.FailurePolicy{FailRequest: true}), stub.WithLogger(nriLog{a.Log}))
	if err != nil {
		return fmt.Errorf("NRI plugin %s-%s: %w", index, a.Driver, err)
	}
	// Start never returns if the connection is lost between its two handshakes.
	started := make(chan error, 1)
	go func() { started <- s.Start(ctx) }()
	select {
	case err := <-started:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(handshake):
		return fmt.Errorf("%s: no answer within %v", socket, handshake)
	}
	a.connected(true)
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	s.Wait()
	return errors.New("connection closed")
}

func (a *Agent) connected(on bool) {
	if a.Metrics.Connected != nil {
		a.Metrics.Connected(on)
	}
}

// disconnected: from here on sandboxes end without our being told.
func (a *Agent) disconnected() {
	a.mu.Lock()
	a.synced = false
	a.mu.Unlock()
	a.connected(false)
}
