// Package nritest provides the runtime's side of NRI for tests of plugins.
package nritest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
)

// Serve serves plugins at a socket until the test ends, like a container runtime with these sandboxes.
func Serve(t testing.TB, socket string, pods []*adaptation.PodSandbox, options ...adaptation.Option) *adaptation.Adaptation {
	t.Helper()
	adaptation.SetPluginRequestTimeout(3 * time.Minute) // longer than any plugin takes in a test
	list := func(ctx context.Context, tell adaptation.SyncCB) error {
		_, err := tell(ctx, pods, nil)
		return err
	}
	nothing := func(context.Context, []*adaptation.ContainerUpdate) ([]*adaptation.ContainerUpdate, error) {
		return nil, nil
	}
	none := filepath.Join(t.TempDir(), "none")
	runtime, err := adaptation.New("test", "v2.5.0", list, nothing, append(options, adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(none), adaptation.WithPluginConfigPath(none))...)
	if err == nil {
		err = runtime.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(runtime.Stop)
	return runtime
}
