package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/core/httpstatus/httpstatustest"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
)

// alone returns options for a driver without kubelet, runtime and API server.
func alone(t *testing.T) *options {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra-") // t.TempDir is too long for a socket
	difftest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	kubeconfig := filepath.Join(dir, "kubeconfig")
	const nowhere = `{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]}`
	difftest.Must(t, os.WriteFile(kubeconfig, []byte(nowhere), 0o600))
	difftest.Must(t, os.WriteFile(filepath.Join(dir, "gate"), nil, 0o755))
	difftest.Must(t, os.WriteFile(filepath.Join(dir, "node.json"), []byte(`{"stateDir": "`+filepath.Join(dir, "journal")+`"}`), 0o600))
	return &options{
		nodeName: "n1", kubeconfig: kubeconfig, pluginsDir: dir, registrarDir: dir, nodeConfig: filepath.Join(dir, "node.json"),
		cdiDir: filepath.Join(dir, "cdi"), cniBinDir: dir, nriSocket: filepath.Join(dir, "nri.sock"), nriIndex: "50",
		podResources: filepath.Join(dir, "none.sock"), gate: filepath.Join(dir, "gate"),
		metadata: true, metricsAddress: httpstatustest.Free(t),
	}
}

// started runs a driver. end stops it and returns the result of run.
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

// The address is in use at first, for example by the previous driver.
func TestDriverWaitsForKubeletRuntimeServerAndAddress(t *testing.T) {
	o := alone(t)
	taken, err := net.Listen("tcp", o.metricsAddress)
	difftest.Must(t, err)
	end := started(t, o)
	difftest.Eventually(t, "the kubelet could register it", func() bool {
		sockets, _ := filepath.Glob(filepath.Join(o.registrarDir, "*-reg.sock"))
		return len(sockets) > 0
	})
	difftest.Must(t, taken.Close())
	httpstatustest.WaitHealth(t, o.metricsAddress, "503 ", "[-] kubelet: the kubelet has not registered the driver", "[-] nri: not connected to "+o.nriSocket, "[+] state")
	difftest.Is(t, run(t.Context(), o, slog.New(slog.DiscardHandler)), state.ErrLocked)
	difftest.Must(t, end())
	if sockets, _ := filepath.Glob(filepath.Join(o.pluginsDir, "*.sock")); len(sockets) > 0 {
		t.Errorf("left behind: %s", sockets)
	}
	difftest.Must(t, started(t, o)()) // the next driver
}

// The driver has its directories open, and other programs of the node look for its files where the settings say. Settings that
// change no directory, or that it could not start with, do not end it.
func TestDriverEndsWhenSettingsMoveADirectory(t *testing.T) {
	for _, key := range []string{"stateDir", "deviceInfoDir", "devicePluginDir", "cdiDir", "sysfs"} {
		o, done := alone(t), make(chan error, 1)
		o.every, o.cdiDir = 10*time.Millisecond, ""
		dir, log := filepath.Dir(o.nodeConfig), &difftest.Log{}
		write := func(more string) {
			difftest.Write(t, o.nodeConfig+".new", `{"stateDir": "`+dir+`/journal", "cdiDir": "`+dir+`/cdi"`+more+"}", 0o600)
			difftest.Must(t, os.Rename(o.nodeConfig+".new", o.nodeConfig))
		}
		write("")
		go func() { done <- run(t.Context(), o, slog.New(slog.NewTextHandler(log, nil))) }()
		httpstatustest.WaitHealth(t, o.metricsAddress, "503 ", "[+] state")
		write(`, "allowedDevices": ["*"], "statDir": "/x"`)
		difftest.Eventually(t, "the settings are refused", func() bool { return strings.Contains(log.String(), "statDir") })
		write(`, "allowedDevices": ["*"], "` + key + `": "/sys/class"`)
		difftest.Says(t, <-done, key, "/sys/class", "restart")
	}
}

func TestDriverDoesNotStartWithMissingPrerequisites(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // limit for a driver that does start
	defer cancel()
	mounted, err := os.Open(t.TempDir()) // as a container still has it
	difftest.Must(t, err, os.Remove(mounted.Name()))
	defer mounted.Close()
	removed := fmt.Sprint("/proc/self/fd/", mounted.Fd())
	for want, spoil := range map[string]func(*options){
		"--cni-bin-dir: stat /nonexistent: no such file or directory: name": func(o *options) { o.cniBinDir = "/nonexistent" },
		"kubeconfig is no directory (mode -rw":                              func(o *options) { o.cniBinDir = o.kubeconfig },
		"--host-root: stat /nonexistent: no such file or directory: name":   func(o *options) { o.hostRoot = "/nonexistent" },
		"--kubelet-plugins-dir: stat ":                                      func(o *options) { o.pluginsDir += "/none" },
		"--cdi-dir: ":                                                       func(o *options) { o.cdiDir = o.kubeconfig },
		"--gate-binary: stat /nonexistent: ":                                func(o *options) { o.gate = "/nonexistent" },
		"--gate-binary: / is no program (mode d":                            func(o *options) { o.gate = "/" },
		"--devices":                                                         func(o *options) { o.devices = "/nonexistent" },
		"--node-config":                                                     func(o *options) { o.nodeConfig = o.kubeconfig },
		"--kubelet-registrar-dir: stat /nonexistent: ":                      func(o *options) { o.registrarDir = "/nonexistent" },
		"--kubeconfig: stat":                                                func(o *options) { o.kubeconfig = "/nonexistent" },
		"give --kubeconfig":                                                 func(o *options) { o.kubeconfig = "" },
		"/proc/self/fdinfo":                                                 func(o *options) { o.pluginsDir = "/proc/self/fdinfo" },
		removed + " was removed on the node":                                func(o *options) { o.cdiDir = removed },
		removed + " was removed on the node, ":                              func(o *options) { o.nriSocket = removed + "/nri.sock" },
		removed + " was removed on the node, and": func(o *options) {
			difftest.Write(t, o.nodeConfig, `{"stateDir": "`+o.pluginsDir+`/journal", "socketDirs": ["`+removed+`"]}`, 0o600)
		},
		`devices[1].sharing: the key is missing; write "shared" or "exclusive"`: func(o *options) { // otherwise an update would go on to other nodes
			o.devices = o.nodeConfig + ".devices"
			difftest.Write(t, o.devices, "devices:\n- {ifNames: [eth1], sharing: shared}\n- {ifNames: [eth2]}\n", 0o600)
		},
	} {
		o := alone(t)
		spoil(o)
		difftest.Says(t, run(ctx, o, slog.New(slog.DiscardHandler)), want)
	}
}

func TestDriverDoesNotStartWithoutHostMounts(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		const dir = "/run/netns"
		difftest.Must(t, os.MkdirAll(dir, 0o755))
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
			difftest.Must(t, unix.Mount("", "/run", "", test.propagation, ""))
			err := (&options{hostRoot: test.hostRoot}).checkMounts(test.dir)
			if test.want == "" {
				difftest.Must(t, err)
			} else {
				difftest.Says(t, err, test.want)
			}
		}
	})
}

// slicesServer is an API server with one ResourceSlice of the node. gone reports whether it was deleted.
func slicesServer(t *testing.T, o *options) (gone func() bool) {
	var mu sync.Mutex
	items := `{"metadata": {"name": "one"}}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/resourceslices/one"):
			items = ""
			_, _ = io.WriteString(w, `{"kind": "Status", "apiVersion": "v1", "status": "Success"}`)
		case r.Method == http.MethodGet && r.URL.Query().Get("fieldSelector") == "spec.driver="+driver+",spec.nodeName=n1":
			_, _ = io.WriteString(w, `{"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/v1", "metadata": {"resourceVersion": "1"}, "items": [`+items+`]}`)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	text := strings.ReplaceAll(difftest.Read(t, o.kubeconfig), "https://127.0.0.1:1", server.URL)
	difftest.Must(t, os.WriteFile(o.kubeconfig, []byte(text), 0o600))
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return items == ""
	}
}

// The kubelet cannot unprepare the claims of deleted pods without the driver.
func TestUninstallServesClaimsUntilNoneIsOnRecord(t *testing.T) {
	o := alone(t)
	o.uninstall, o.linger = true, 20*time.Millisecond
	o.pluginsDir, o.registrarDir = filepath.Join(o.pluginsDir, "plugins"), filepath.Join(o.registrarDir, "registry")
	difftest.Must(t, os.Mkdir(o.pluginsDir, 0o755), os.Mkdir(o.registrarDir, 0o755))
	gone := slicesServer(t, o)
	records, err := state.Open(o.stateDir())
	difftest.Must(t, err)
	difftest.Must(t, records.Put(&state.Claim{Namespace: "ns", Name: "net", UID: "u1", Pod: state.Pod{Namespace: "ns", Name: "web", UID: "p1"}, Attachments: []state.Attachment{
		{Request: "r", Pool: "n1", Device: "cni", Network: "net", CNIVersion: "1.0.0", IfName: "net1", List: []byte(`{}`), Phase: state.Prepared},
	}}), records.Close())
	const uses = "claims are on record, 1 in all: delete their pods while the driver runs: pod ns/web (claim ns/net)"
	difftest.Says(t, run(t.Context(), o, slog.New(slog.DiscardHandler)), "--uninstall: "+uses+"; or give --force")
	difftest.Same(t, "a refused removal withdraws the offer", gone(), false)

	o.keepRunning = true
	end := started(t, o)
	httpstatustest.WaitHealth(t, o.metricsAddress, "503 ", "[+] state", "[-] uninstalled: "+uses)
	difftest.Eventually(t, "the ResourceSlice is deleted", gone)
	conn := dratest.Dial(t, filepath.Join(o.pluginDir(), "dra.sock"))
	claims := []*drapb.Claim{{Namespace: "ns", Name: "net", Uid: "u1"}}
	_, err = drapb.NewDRAPluginClient(conn).NodeUnprepareResources(t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: claims})
	difftest.Must(t, err)
	httpstatustest.WaitHealth(t, o.metricsAddress, "200 ", "[+] uninstalled")
	difftest.Must(t, end())
	left := difftest.Files(t, o.pluginsDir, o.registrarDir, filepath.Join(o.cniBinDir, gateName), o.cdiDir)
	if _, err := os.Stat(o.pluginDir()); !os.IsNotExist(err) || left != nil {
		t.Errorf("left: %q, %v", left, err)
	}
}
