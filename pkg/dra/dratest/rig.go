// Package dratest has what tests of the driver share: a node with an agent whose kubelet, container runtime, API server,
// CNI plugins and devices are simulated. Begin with [NewRig]. Most tests use [InBubble], where time is simulated too and
// plugins have no processes.
package dratest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// Rig is a node with an agent: its directories, and the calls to the API server.
type Rig struct {
	T       testing.TB
	Dir     string
	Options claim.Options
	Agent   *dra.Agent
	// Registry has the metrics of Agent.
	Registry *prometheus.Registry
	Stop     func() // stops Agent
	// runtimeWaits is the container runtime's time limit for a call. The default of runtimes is 2 s; it is
	// longer in tests with real time.
	runtimeWaits time.Duration

	Measured     bool            // no instruments: see checked
	OutsideCalls map[string]bool // functions of the options that the agent has called

	Withdraw       bool // see dra.KubeletOptions
	NoMetadata     bool
	MetadataWriter claim.Metadata // by default the rig

	Plugins *Plugins            // nil = plugins are processes
	Kernel  *restoretest.Kernel // kernel of the devices; nil = no devices

	mu       sync.Mutex
	claim    *resourceapi.ResourceClaim // see ReadClaims
	claimErr error
	notices  []string // their reasons
	reports  []status.Report

	Metadata []kubeletplugin.Device // of networks, in the order in which the agent wrote it; read it while the agent is idle
}

// NewRig returns a rig that exists until the test ends. Its agent is not started.
func NewRig(t testing.TB) *Rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "dra-")
	difftest.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &Rig{T: t, Dir: dir, Options: Options(dir), runtimeWaits: 3 * time.Minute, OutsideCalls: map[string]bool{}}
	r.MetadataWriter = r
	r.ReadClaims(nil, errors.New("no API server"))
	r.Options.Read = func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.claim.DeepCopy(), r.claimErr
	}
	r.Options.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	r.Options.Devices.Lineage = NewNode(t, "mlx5-switchdev").Lineage
	r.Options.Notify = func(n claim.Notice) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.notices = append(r.notices, n.Reason)
	}
	r.Options.ClaimsOf = func(ctx context.Context, pod state.Pod) (names []string, err error) { // those that are reserved for it
		records, _ := r.Agent.Records()
		for _, record := range records {
			var ref kubeletplugin.NamespacedObject
			ref.Namespace, ref.Name, ref.UID = record.Namespace, record.Name, types.UID(record.UID)
			claim, err := r.Options.Read(ctx, ref)
			if err != nil {
				return nil, err
			}
			if claim == nil {
				continue
			}
			if pods, _ := cniconfig.Pods(claim); slices.ContainsFunc(pods, func(p state.Pod) bool { return p.UID == pod.UID }) {
				names = append(names, record.Name)
			}
		}
		return names, nil
	}
	r.Options.Status = func(_ context.Context, report status.Report) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.reports = append(r.reports, report)
		return nil
	}
	return r
}

// Options returns the options of an agent whose directories are below dir.
func Options(dir string) claim.Options {
	Check(os.MkdirAll(filepath.Join(dir, "netns"), 0o700))
	Check(os.MkdirAll(filepath.Join(dir, "bin"), 0o700))
	self, err := os.Executable()
	Check(err)
	if err := os.Symlink(self, filepath.Join(dir, "bin/fake")); !os.IsExist(err) {
		Check(err)
	}
	return claim.Options{
		Driver: Driver, Policy: cniconfig.Policy{Driver: Driver, Pool: "node1"},
		Dirs: claim.Dirs{
			StateDir: filepath.Join(dir, "state"), CacheDir: filepath.Join(dir, "cache"), CDIDir: filepath.Join(dir, "cdi"),
			DeviceInfoDir: filepath.Join(dir, "info"), CNIBinDirs: []string{filepath.Join(dir, "bin")},
		},
		Retries: claim.Retries{Sweep: 20 * time.Millisecond, DelMinRetryTime: 300 * time.Millisecond, Hold: 3 * time.Minute},
		Gate:    "/opt/cni/bin/cni-dra-gate", BootID: "boot1", Netns: fileIsNetns, Unexposed: func(string, string) error { return nil },
		Status: func(context.Context, status.Report) error { return nil }, Notify: func(claim.Notice) {},
		Read: func(context.Context, kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
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

// Start stops the running agent, if any, and starts another, until the test ends.
func (r *Rig) Start() *dra.Agent {
	r.T.Helper()
	return r.start(func(agent *dra.Agent) (hangUp func()) {
		agent.SetMetadata(r.MetadataWriter)
		return func() {}
	})
}

// start is Start. It calls connect before the agent runs, and r.Stop calls hangUp before it stops the agent.
func (r *Rig) start(connect func(*dra.Agent) (hangUp func())) *dra.Agent {
	r.T.Helper()
	if r.Agent != nil {
		r.Stop()
	}
	r.Registry = prometheus.NewRegistry()
	r.Options.Metrics = r.Registry
	var agent *dra.Agent
	o := r.Options
	if !r.Measured {
		o = checked(&r.Options, func(what string) {
			if agent != nil {
				_, _ = agent.Records()       // takes the mutex of package claim
				_ = agent.Node.OthersKnown() // takes the mutex of package devices
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.OutsideCalls[what] = true
		})
	}
	made, err := claim.New(o)
	difftest.Must(r.T, err)
	agent = made
	hangUp := connect(agent)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); agent.Run(ctx) }()
	r.Agent = agent
	r.Stop = sync.OnceFunc(func() {
		hangUp()
		cancel()
		<-done
		difftest.Must(r.T, agent.Close())
	})
	r.T.Cleanup(r.Stop)
	return agent
}

// UpdateRequestMetadata is the agent's writer of metadata.
func (r *Rig) UpdateRequestMetadata(_ context.Context, _, _ string, _ types.UID, _ string, devices []kubeletplugin.Device) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Metadata = append(r.Metadata, devices...)
	return nil
}

// Notices returns the reasons of the agent's notices.
func (r *Rig) Notices() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.notices)
}

// LastReport returns the last status that the agent sent.
func (r *Rig) LastReport() status.Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.reports) == 0 {
		return status.Report{}
	}
	return r.reports[len(r.reports)-1]
}

// NoError is like difftest.Must, but does not end the test. Therefore any goroutine may call it.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// WaitUntil waits until differs returns "".
func WaitUntil(t testing.TB, differs func() string) {
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

// Samples returns the agent's metrics by name and labels. For a histogram it returns the count.
func (r *Rig) Samples() map[string]float64 {
	r.T.Helper()
	families, err := r.Registry.Gather()
	difftest.Must(r.T, err)
	samples := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, label := range m.GetLabel() {
				name += fmt.Sprintf(" %s=%s", label.GetName(), label.GetValue())
			}
			samples[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return samples
}

// checked returns options whose functions first call ask with their names, and then those of live, which tests change
// meanwhile. If ask takes both mutexes of the agent, the test hangs if the agent holds one of them during a read or a call.
func checked(live *claim.Options, ask func(what string)) claim.Options {
	o := *live
	o.Netns = func(path string) error { ask("Netns"); return live.Netns(path) }
	o.Unexposed = func(root, dir string) error { ask("Unexposed"); return live.Unexposed(root, dir) }
	o.Status = func(ctx context.Context, report status.Report) error { ask("Status"); return live.Status(ctx, report) }
	o.Read = func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		ask("Read")
		return live.Read(ctx, ref)
	}
	o.ClaimsOf = func(ctx context.Context, pod state.Pod) ([]string, error) {
		ask("ClaimsOf")
		return live.ClaimsOf(ctx, pod)
	}
	o.Notify = func(n claim.Notice) { ask("Notify"); live.Notify(n) }
	o.Reached = func(name string) { ask("Reached"); live.Reached(name) }
	its, of := &live.Devices, &o.Devices
	of.Lineage = func(device string) ([]sysfs.Object, error) { ask("Lineage"); return its.Lineage(device) }
	of.Advertised = func(ctx context.Context, resource, device string) (bool, error) {
		ask("Advertised")
		return its.Advertised(ctx, resource, device)
	}
	if its.Settings != nil {
		of.Settings = func() (config.Node, error) { ask("Settings"); return its.Settings() }
	}
	if its.DeviceNodes != nil {
		of.DeviceNodes = func(path string) (cdispec.DeviceNode, error) { ask("DeviceNodes"); return its.DeviceNodes(path) }
	}
	if node := its.Inventory; node != nil {
		copied := *node
		copied.Host = func() (inventory.Host, error) { ask("Host"); return node.Host() }
		copied.Others = func(ctx context.Context) (map[string]string, error) { ask("Others"); return node.Others(ctx) }
		if node.Labels != nil {
			copied.Labels = func(ctx context.Context) (map[string]string, error) { ask("Labels"); return node.Labels(ctx) }
		}
		of.Inventory = &copied
	}
	if j := of.Journal; j != nil {
		gone := j.NetnsGone
		j.NetnsGone = func(path string) (bool, error) { ask("netns, with the journal locked"); return gone(path) }
	}
	return o
}
