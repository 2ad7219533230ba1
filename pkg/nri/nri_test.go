package nri_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"regexp"
	"slices"
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

// Were the connection kept, there would be another one with each try, and a runtime that answers
// late would have the plugin twice: whatever both add to a container NRI refuses.
func TestARuntimeThatDoesNotAnswerIsDisconnected(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "nri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	var log bytes.Buffer
	go func() {
		ended <- nri.Plugin{
			Handler: handler{}, Name: "test", Index: "60", Socket: listener.Addr().String(), Handshake: 100 * time.Millisecond,
			Connected: func(bool) {}, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}.Serve(ctx)
	}()
	for range 3 {
		plugin, err := listener.Accept()
		if err == nil {
			err = plugin.SetReadDeadline(time.Now().Add(2 * time.Minute))
		}
		if err == nil {
			_, err = io.Copy(io.Discard, plugin)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	end()
	<-ended
	if want := "no answer within 100ms"; strings.Count(log.String(), want) < 2 { // the library gives up after 5 s, but only if nothing at all was answered
		t.Errorf("%q is not said twice:\n%s", want, &log)
	}
	if pauses := regexp.MustCompile(`retryIn=(\w+)`).FindAllString(log.String(), 2); !slices.Equal(pauses, []string{"retryIn=500ms", "retryIn=1s"}) {
		t.Errorf("it pauses %q:\n%s", pauses, &log)
	}
}
