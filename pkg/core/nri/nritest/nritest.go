// Package nritest simulates a container runtime with NRI for tests of plugins.
package nritest

import (
	"context"
	"path/filepath"
	"slices"
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

// WorkLimit is how long 99 of 100 requests may take for which a plugin waits for nothing. All pods of the node wait with each.
const WorkLimit = 20 * time.Millisecond

// ReportWork reports how long such requests took. It fails the benchmark if they took too long.
func ReportWork(b *testing.B, request string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	p50, p99 := took[len(took)/2], took[len(took)*99/100]
	b.ReportMetric(float64(p50.Microseconds())/1000, request+"-ms-p50")
	b.ReportMetric(float64(p99.Microseconds())/1000, request+"-ms-p99")
	b.ReportMetric(float64(WorkLimit.Milliseconds()), "limit-ms")
	if p99 > WorkLimit {
		b.Errorf("%s takes %v at p99, more than %v (%v at p50)", request, p99, WorkLimit, p50)
	}
}
