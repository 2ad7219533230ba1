package nri_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"devinfo-cni.io/pkg/nri"
)

// Whatever such a plugin adds to a container, the other one adds too, which NRI refuses.
func TestARuntimeThatAnswersLateDoesNotHaveThePluginTwice(t *testing.T) {
	dir := t.TempDir()
	served(t, dir)
	listener, err := net.Listen("unix", filepath.Join(dir, "late.sock"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	gaveUp := make(chan bool, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- nri.Plugin{
			Handler: handler{}, Name: "test", Index: "60", Socket: listener.Addr().String(), Handshake: 100 * time.Millisecond,
			Connected: func(bool) {
				select {
				case gaveUp <- true:
				default:
				}
			},
			Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		}.Serve(ctx)
	}()
	plugin, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // no other try reaches the runtime
	runtime, err := net.Dial("unix", filepath.Join(dir, "nri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan struct{})
	go func() { _, _ = io.Copy(runtime, plugin); close(left) }()
	<-gaveUp
	go func() { _, _ = io.Copy(plugin, runtime) }()
	select {
	case <-left:
	case <-time.After(patient):
		t.Error("the runtime has a plugin that was given up")
	}
	end()
	<-ended
}
