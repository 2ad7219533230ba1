package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link/linktest"
)

// alone are the options of an agent without kubelet, runtime and API server.
func alone(t *testing.T) *options {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra-") // t.TempDir is too long for a socket
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	kubeconfig := filepath.Join(dir, "kubeconfig")
	const nowhere = `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`
	must(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
	return &options{
		nodeName: "n1", kubeconfig: kubeconfig, pluginsDir: dir, registrarDir: dir, nodeConfig: filepath.Join(dir, "none.json"),
		cdiDir: filepath.Join(dir, "cdi"), cniBinDirs: []string{dir}, nriSocket: filepath.Join(dir, "nri.sock"), nriIndex: "50",
		podResources: filepath.Join(dir, "none.sock"),
		metadata:     true, httpEndpoint: free(t),
	}
}

// started runs an agent; end ends it and gives what run returned.
func started(t *testing.T, o *options) (end func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx, o, slog.New(slog.NewTextHandler(t.Output(), nil))) }()
	return func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(3 * time.Minute):
			return errors.New("it does not end")
		}
	}
}

func TestAnAgentWaitsForKubeletRuntimeAndServer(t *testing.T) {
	o := alone(t)
	end := started(t, o)
	var text string
	for limit := time.Now().Add(3 * time.Minute); text == "" && time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get("http://" + o.httpEndpoint + "/healthz"); err == nil {
			data, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			text = answer.Status + "\n" + string(data)
		}
	}
	for _, want := range []string{"503 ", "[-] kubelet: the kubelet has not registered it", "[-] nri: not connected to " + o.nriSocket, "[+] state"} {
		if !strings.Contains(text, want) {
			t.Errorf("/healthz does not say %q:\n%s", want, text)
		}
	}
	if err := run(t.Context(), o, slog.New(slog.DiscardHandler)); !errors.Is(err, state.ErrLocked) {
		t.Errorf("a second agent: %v", err)
	}
	if err := end(); err != nil {
		t.Errorf("at the end: %v", err)
	}
	if sockets, _ := filepath.Glob(filepath.Join(o.pluginsDir, "*.sock")); len(sockets) > 0 {
		t.Errorf("left behind: %s", sockets)
	}
	if err := started(t, o)(); err != nil {
		t.Errorf("the next agent: %v", err)
	}
}

func TestAnAgentDoesNotStartWhereItCouldNotWork(t *testing.T) {
	for want, spoil := range map[string]func(*options){
		"--cni-bin-dir":      func(o *options) { o.cniBinDirs = []string{"/nonexistent"} },
		"devices[1].as:":     func(o *options) { o.devices = wrong(t) },
		"--devices":          func(o *options) { o.devices = "/nonexistent" },
		"--node-config":      func(o *options) { o.nodeConfig = o.kubeconfig },
		"--http-endpoint":    func(o *options) { o.httpEndpoint = "192.0.2.1:1" },
		"of the kubelet":     func(o *options) { o.registrarDir = "/nonexistent" },
		"--kubeconfig: stat": func(o *options) { o.kubeconfig = "/nonexistent" },
		"give --kubeconfig":  func(o *options) { o.kubeconfig = "" },
		"/proc/nothing":      func(o *options) { o.pluginsDir = "/proc/nothing" },
	} {
		o := alone(t)
		spoil(o)
		if err := run(t.Context(), o, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q: %v", want, err)
		}
	}
}

// wrong is a file whose second rule is.
func wrong(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "devices.yaml")
	must(t, os.WriteFile(file, []byte("devices:\n- {ifNames: [eth1], as: shared}\n- {ifNames: [eth2]}\n"), 0o600))
	return file
}

// free is an endpoint that nobody uses.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func TestAnAgentThatWouldTakeEachNamespaceForGoneDoesNotStart(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		const dir = "/run/netns"
		must(t, os.MkdirAll(dir, 0o755))
		for _, test := range []struct {
			hostRoot, dir string
			propagation   uintptr
			want          string
		}{
			{"/host", dir, unix.MS_PRIVATE, "mountPropagation: HostToContainer"},
			{"/host", dir, unix.MS_SHARED, ""},
			{"/host", dir + "/elsewhere", unix.MS_PRIVATE, ""},
			{"", dir, unix.MS_PRIVATE, ""}, // on the node itself
		} {
			must(t, unix.Mount("", "/run", "", test.propagation, ""))
			err := (&options{hostRoot: test.hostRoot}).checkMounts(test.dir)
			if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v: got %v", test, err)
			}
		}
	})
}

var must = difftest.Must
