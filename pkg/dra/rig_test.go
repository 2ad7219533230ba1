package dra_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
)

// rig is a node with an agent: its directories, and the calls to the API server.
type rig struct {
	t       testing.TB
	dir     string
	options claim.Options
	agent   *dra.Agent
	// registry has the metrics of agent.
	registry *prometheus.Registry
	stop     func()            // stops agent
	reached  func(name string) // see claim.Options
	// runtimeWaits is the container runtime's time limit for a call. The default of runtimes is 2 s; it is
	// longer in tests with real time.
	runtimeWaits time.Duration
	measured     bool // no instruments: see withLockCheck

	plugins *plugins            // nil = plugins are processes
	kernel  *restoretest.Kernel // kernel of the devices; nil = no devices

	mu             sync.Mutex
	notices        []string // their reasons
	reports        []status.Report
	metadata       []kubeletplugin.Device
	outsideCalls   map[string]bool // see withLockCheck
	withdraw       bool            // see dra.KubeletOptions
	noMetadata     bool
	metadataWriter claim.Metadata // by default the rig
}

func newRig(t testing.TB) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &rig{t: t, dir: dir, options: optionsIn(dir), runtimeWaits: 3 * time.Minute, reached: func(string) {}}
	r.metadataWriter = r
	r.options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	r.options.Devices.Lineage = newNode(t, "mlx5-switchdev").lineage
	r.options.Status = func(_ context.Context, report status.Report) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports = append(r.reports, report)
		return nil
	}
	return r
}

// optionsIn returns the options of an agent whose directories are below dir.
func optionsIn(dir string) claim.Options {
	check(os.MkdirAll(filepath.Join(dir, "netns"), 0o755))
	check(os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
	self, err := os.Executable()
	check(err)
	if err := os.Symlink(self, filepath.Join(dir, "bin/fake")); !os.IsExist(err) {
		check(err)
	}
	return claim.Options{
		Driver: driverName, Policy: cniconfig.Policy{Driver: driverName, Pool: "node1"},
		Dirs: claim.Dirs{
			StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache"), CDIDir: filepath.Join(dir, "cdi"),
			DeviceInfoDir: filepath.Join(dir, "info"), CNIBinDirs: []string{filepath.Join(dir, "bin")},
		},
		Retries: claim.Retries{Sweep: 20 * time.Millisecond, DelMinRetryTime: 300 * time.Millisecond},
		Gate:    "/opt/cni/bin/cni-dra-gate", BootID: "boot1", Netns: fileIsNetns, Unexposed: func(string, string) error { return nil },
		Status: func(context.Context, status.Report) error { return nil }, Notify: func(claim.Notice) {},
		Read: func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
			return nil, errors.New("no API server")
		},
		List: func(context.Context, string) ([]resourceapi.ResourceClaim, error) {
			return nil, errors.New("no API server")
		},
		Reached: func(string) {}, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Devices: devices.Options{
			DevicePluginDir: filepath.Join(dir, "dp"), Advertised: func(context.Context, string, string) (bool, error) { return false, nil },
		}}
}

// fileIsNetns accepts any file as a network namespace, because creating a namespace needs root.
func fileIsNetns(path string) error {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return link.ErrNoNetns
	}
	return err
}

// start stops the running agent, if any, and starts another, until the test ends.
func (r *rig) start() *dra.Agent {
	r.t.Helper()
	r.options.Reached = r.reached
	agent := r.newAgent()
	agent.SetMetadata(r.metadataWriter)
	r.run(agent, func() {})
	return agent
}

// newAgent stops the running agent, if any, and returns another one that does not run yet.
func (r *rig) newAgent() *dra.Agent {
	r.t.Helper()
	if r.agent != nil {
		r.stop()
	}
	r.registry = prometheus.NewRegistry()
	r.options.Metrics = r.registry
	if r.measured {
		agent, err := dra.New(r.options)
		must(r.t, err)
		return agent
	}
	var agent *dra.Agent
	o := r.withLockCheck(func() {
		if agent != nil {
			noError(r.t, agent.Check())  // takes the mutex of package claim
			_ = agent.Node.OthersKnown() // takes the mutex of package devices
		}
	})
	made, err := dra.New(o)
	must(r.t, err)
	agent = made
	return agent
}

// run runs an agent until the test ends or r.stop is called. r.stop first calls hangUp.
func (r *rig) run(agent *dra.Agent, hangUp func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); agent.Run(ctx) }()
	r.agent = agent
	r.stop = sync.OnceFunc(func() {
		hangUp()
		cancel()
		<-done
		must(r.t, agent.Close())
	})
	r.t.Cleanup(r.stop)
}

func (r *rig) UpdateRequestMetadata(_ context.Context, _, _ string, _ types.UID, _ string, devices []kubeletplugin.Device) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.metadata = append(r.metadata, devices...)
	return nil
}

func (r *rig) prepare(claims ...*resourceapi.ResourceClaim) {
	r.t.Helper()
	for _, claim := range claims {
		_, err := r.agent.Prepare(r.t.Context(), claim)
		must(r.t, err)
	}
}

// prepareFails checks that Prepare fails with an error that contains all parts.
func (r *rig) prepareFails(claim *resourceapi.ResourceClaim, parts ...string) {
	r.t.Helper()
	_, err := r.agent.Prepare(r.t.Context(), claim)
	says(r.t, err, parts...)
}

// listSandboxes lists the running sandboxes to the agent, as the runtime does.
func (r *rig) listSandboxes(sandboxes ...*api.PodSandbox) {
	r.t.Helper()
	_, err := r.agent.Synchronize(r.t.Context(), sandboxes, nil)
	must(r.t, err)
}

// runSandbox starts a sandbox and returns it.
func (r *rig) runSandbox(id, pod string) *api.PodSandbox {
	r.t.Helper()
	sb := r.sandbox(id, pod)
	must(r.t, r.runPod(sb))
	return sb
}

// attachPod prepares claims and starts sandbox s1 of the pod named pod.
func (r *rig) attachPod(claims ...*resourceapi.ResourceClaim) *api.PodSandbox {
	r.t.Helper()
	r.prepare(claims...)
	return r.runSandbox("s1", "pod")
}

// sandbox returns a sandbox of a pod with a network namespace.
func (r *rig) sandbox(id, pod string) *api.PodSandbox { return sandboxIn(r.dir, id, pod) }

func sandboxIn(dir, id, pod string) *api.PodSandbox {
	netns := filepath.Join(dir, "netns", id)
	check(os.WriteFile(netns, nil, 0o644))
	return &api.PodSandbox{Id: id, Name: pod, Namespace: "ns", Uid: "uid-" + pod,
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "ipc"}, {Type: "network", Path: netns}}}}
}

// removeNetns removes the network namespace of a sandbox.
func (r *rig) removeNetns(sb *api.PodSandbox) {
	r.t.Helper()
	noError(r.t, os.Remove(filepath.Join(r.dir, "netns", sb.Id)))
}

// calls returns the calls of the plugin "fake".
func (r *rig) calls() (list []call) {
	r.t.Helper()
	f, err := os.Open(filepath.Join(r.dir, "calls"))
	if os.IsNotExist(err) {
		return nil
	}
	must(r.t, err)
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var c call
		must(r.t, json.Unmarshal(s.Bytes(), &c))
		list = append(list, c)
	}
	return list
}

// callNames returns the calls as "ADD s1 net1".
func (r *rig) callNames() (list []string) {
	for _, c := range r.calls() {
		list = append(list, strings.Join([]string{c.Command, c.Sandbox, c.IfName}, " "))
	}
	return list
}

// files returns the names of the files in a directory of the rig.
func (r *rig) files(dir string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(r.dir, dir))
	for _, e := range entries {
		if e.Name() != "lock" {
			names = append(names, e.Name())
		}
	}
	return names
}

// expectFiles checks the number of files in a directory of the rig.
func (r *rig) expectFiles(dir string, n int) {
	r.t.Helper()
	if got := r.files(dir); len(got) != n {
		r.t.Errorf("%s: got %q, want %d", dir, got, n)
	}
}

// expectNothing checks that the plugins and the agent have left no files.
func (r *rig) expectNothing() {
	r.t.Helper()
	for _, dir := range []string{"there", "state", "cdi", "info", "dp", "cache"} {
		r.expectFiles(dir, 0)
	}
}

// expectInterfaces checks which interfaces of the plugin "fake" exist.
func (r *rig) expectInterfaces(names ...string) {
	r.t.Helper()
	difftest.Same(r.t, "there", r.files("there"), names)
}

// expectPhase checks the number of attachments in a phase.
func (r *rig) expectPhase(phase string, n int) {
	r.t.Helper()
	if census := r.agent.Census(); census.Phases[phase] != n {
		r.t.Errorf("got %v, want %d %s", census, n, phase)
	}
}

// expectCalls checks the number of plugin calls with a prefix.
func (r *rig) expectCalls(prefix string, n int) {
	r.t.Helper()
	if got := r.plugins.calls(prefix); got != n {
		r.t.Errorf("%d calls %q, want %d: %q", got, prefix, n, r.plugins.started)
	}
}

// waitUntil waits until differs returns "".
func waitUntil(t testing.TB, differs func() string) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		switch diff := differs(); {
		case diff == "":
			return
		case time.Now().After(end):
			t.Fatal(diff)
		}
	}
}

func (r *rig) lastReport() status.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.reports) == 0 {
		return status.Report{}
	}
	return r.reports[len(r.reports)-1]
}

var (
	must = difftest.Must
	says = difftest.Says
)

// noError is like must, but does not end the test. Therefore any goroutine may call it.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
