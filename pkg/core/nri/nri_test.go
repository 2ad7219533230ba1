package nri_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/test/difftest"
)

type handler struct{}

func (handler) RemovePodSandbox(context.Context, *api.PodSandbox) error { return nil }

// A runtime without NRI must not cause a warning at each attempt. While it restarts, attempts follow each other closely: it
// creates containers as soon as it is back, with the plugin or without.
func TestMissingRuntimeIsLoggedOnce(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nri.sock")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		tries := 0
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		nri.Plugin{
			Handler: handler{}, Name: "test", Index: "60", Socket: socket, Log: slog.New(slog.NewTextHandler(&log, nil)),
			Connected: func(error) { tries++ },
		}.Serve(ctx)
		if tries < 1000 {
			t.Errorf("%d tries", tries)
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "not connected to the container runtime") || !strings.Contains(text, socket) {
			t.Errorf("logged:\n%s", text)
		}
	})
}

// refusing is a handler that refuses its first configuration.
type refusing struct {
	handler
	configured *atomic.Int32
}

func (r refusing) Configure(context.Context, string, string, string) (stub.EventMask, error) {
	if r.configured.Add(1) == 1 {
		return 0, errors.New("not now")
	}
	return 0, nil
}

// The pause before the next attempt grows until a connection has lasted.
func TestPluginConnectsAgain(t *testing.T) {
	dir := t.TempDir()
	log, err := os.Create(filepath.Join(dir, "log"))
	difftest.Must(t, err)
	defer log.Close()
	ctx, end := context.WithCancel(t.Context())
	connected, ended, conns := make(chan bool, 100), make(chan struct{}), make(chan net.Conn, 100)
	nritest.Serve(t, filepath.Join(dir, "runtime.sock"), nil)
	between, err := net.Listen("unix", filepath.Join(dir, "nri.sock")) // the test ends connections there
	difftest.Must(t, err)
	defer between.Close()
	go func() {
		for plugin, err := between.Accept(); err == nil; plugin, err = between.Accept() {
			runtime, err := net.Dial("unix", filepath.Join(dir, "runtime.sock"))
			if err != nil {
				t.Error(err)
				return
			}
			conns <- plugin
			for _, way := range [][2]net.Conn{{runtime, plugin}, {plugin, runtime}} {
				go func() { // the runtime serves no other plugin while it waits for one that is gone
					io.Copy(way[0], way[1])
					way[0].Close()
				}()
			}
		}
	}()
	go func() {
		nri.Plugin{
			Handler: refusing{configured: new(atomic.Int32)}, Name: "test", Index: "60", Socket: filepath.Join(dir, "nri.sock"),
			Connected: func(away error) { connected <- away == nil }, Log: slog.New(slog.NewTextHandler(log, nil)),
		}.Serve(ctx)
		close(ended)
	}()
	difftest.Equal(t, <-connected, false) // its handler refuses
	for !<-connected {                    // on a slow machine the handshake may take too long
	}
	for len(conns) > 0 {
		(<-conns).Close() // the first is closed already
	}
	for <-connected {
	}
	<-connected // its next attempt comes after the log
	end()
	<-ended
	text := difftest.Read(t, log.Name())
	difftest.Contains(t, text, `level=WARN msg="failed to infer runtime NRI version`, `level=ERROR msg="Plugin configuration failed: not now" from=nri`, `error="connection closed"`)
	difftest.Same(t, text, regexp.MustCompile(`retryIn=(\w+)`).FindAllString(text, 2), []string{"retryIn=500ms", "retryIn=1s"})
	difftest.Lacks(t, text, "context canceled")
}

func TestNamespaceIsOfTheFirstListThatHasIt(t *testing.T) {
	pod, own := []*api.LinuxNamespace{{Type: "pid"}, {Type: "network", Path: "/pod"}}, []*api.LinuxNamespace{{Type: "network", Path: "/own"}, {Type: "user"}}
	for kind, want := range map[string]*api.LinuxNamespace{"network": pod[1], "user": own[1], "cgroup": nil} {
		if got := nri.Namespace(kind, pod, own); got != want {
			t.Errorf("%s: %v", kind, got)
		}
	}
}

// If the plugin kept its connection after a timeout, a slow runtime would have the plugin twice. NRI rejects a
// container if two plugins add the same thing to it.
func TestHandshakeTimeoutClosesConnection(t *testing.T) {
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "nri.sock"))
	difftest.Must(t, err)
	defer listener.Close()
	ctx, end := context.WithCancel(t.Context())
	ended, wasConnected := make(chan struct{}), false
	log, err := os.Create(filepath.Join(t.TempDir(), "log")) // a file, because the library may still write to it at the end
	difftest.Must(t, err)
	defer log.Close()
	go func() {
		nri.Plugin{
			Handler: handler{}, Name: "test", Index: "60", Socket: listener.Addr().String(), Handshake: 100 * time.Millisecond,
			Connected: func(away error) { wasConnected = wasConnected || away == nil }, Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		}.Serve(ctx)
		close(ended)
	}()
	difftest.Must(t, listener.(*net.UnixListener).SetDeadline(time.Now().Add(2*time.Minute)))
	first, err := listener.Accept()
	difftest.Must(t, err, first.Close()) // a runtime that ends at once
	var last net.Conn
	for range 2 {
		plugin, err := listener.Accept()
		difftest.Must(t, err)
		defer plugin.Close()
		if last != nil && isOpen(t, last) { // the library would close it only after 5 s
			t.Error("it connects again, and keeps its last connection")
		}
		last = plugin
	}
	end()
	<-ended
	difftest.Same(t, "connected without a handshake", wasConnected, false)
	text, err := os.ReadFile(log.Name())
	difftest.Must(t, err)
	difftest.Contains(t, string(text), "level=DEBUG", "from=nri")
	difftest.Same(t, "its own end is logged as a failure", strings.Contains(string(text), context.Canceled.Error()), false)
	difftest.Same(t, string(text), regexp.MustCompile(`retryIn=(\w+)`).FindAllString(string(text), 2), []string{"retryIn=500ms", "retryIn=1s"})
}

// isOpen reports, without blocking, whether the other end of a connection is open.
func isOpen(t *testing.T, c net.Conn) (open bool) {
	t.Helper()
	raw, err := c.(*net.UnixConn).SyscallConn()
	difftest.Must(t, err)
	difftest.Must(t, raw.Read(func(fd uintptr) bool {
		n, err := 1, error(nil)
		for n > 0 {
			n, err = syscall.Read(int(fd), make([]byte, 4096))
		}
		open = err == syscall.EAGAIN
		return true
	}))
	return open
}
