package nri_test

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/nri"
)

type handler struct{}

func (handler) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// A runtime without NRI is no news each 15 seconds.
func TestARuntimeThatIsAwayIsLoggedOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tries := 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		err := nri.Plugin{
			Handler: handler{}, Name: "test", Index: "60", Socket: socket, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Connected: func(bool) { tries++ },
		}.Serve(ctx)
		if err != context.DeadlineExceeded || tries < 40 {
			t.Errorf("%v after %d tries", err, tries)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "not connected to the container runtime") || !strings.Contains(text, socket) {
			t.Errorf("logged:\n%s", text)
		}
	})
}
