// Package nritest simulates a container runtime with NRI for tests of plugins.
package nritest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
)

// Serve serves NRI plugins at a socket until the test ends. It reports the given sandboxes to each plugin that
// connects.
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
