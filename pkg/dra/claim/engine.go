// Package claim is the engine of the CNI DRA driver. It records the claims that the kubelet prepares, runs the
// CNI plugins of their networks when the runtime reports a sandbox, opens the gates of containers, and undoes all
// of this when the pod ends. It uses package devices for everything that depends on the node's devices.
//
// The engine is level-triggered. An event changes the goal of a claim and wakes the claim's worker. The worker
// runs one step after another until the claim has reached its goal; package plan has the rules, and README.md lists them.
// A step is on disk before it starts. Therefore crashes, retries and late networks need no code of their own.
//
// The parts of an [Engine]:
//
//   - table: all claims and sandboxes, and the only mutex (table.go, sandbox.go), and who has a claim or a device (owner.go)
//   - kubelet.go, runtime.go and reserve.go: the events, which wait for their outcome
//   - worker: observes the node, calls [plan.Next], and runs the step that it returns
//   - steps: ADD, DEL, restore, and giving up (add.go, del.go), and the claims on disk (records.go); package network
//     runs the plugins of one network
//   - gate: the CDI specs that the containers of a claim need to start
//   - reports and notices: claim status for the API server, and Events for authors of pods
package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/host/store"
)

// Options configures an [Engine]. A field is required unless its comment explains the zero value.
type Options struct {
	Driver string           // name of the DRA driver, and vendor of its CDI devices
	Policy cniconfig.Policy // CNI configurations that claims may contain
	Dirs
	Retries
	Gate     string // path of cni-dra-gate on the host; the program keeps containers of other sandboxes out
	HostRoot string // root directory of CNI plugins; "" = the root of this process
	BootID   string // boot ID of the kernel, from [journal.BootID]
	// Devices configures the devices of the node. New sets its Driver, StateDir, BootID, Metrics, Log and Reached.
	Devices devices.Options

	Netns     func(path string) error      // normally [link.CheckNetns]
	Unexposed func(root, dir string) error // normally [store.UnexposedBelow]
	// Status writes the status of a claim's devices to the API server. The engine repeats the call if
	// [status.Retry] reports true for the error.
	Status func(context.Context, status.Report) error
	// Read reads a claim from the API server. It returns nil if no claim has this name and UID.
	Read func(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error)
	// ClaimsOf reads the names of the claims that a pod uses. It returns nil if no pod has this name and UID.
	ClaimsOf func(context.Context, state.Pod) ([]string, error)
	Notify   func(Notice) // does not wait

	Exec    invoke.Exec       // runs CNI plugins; nil = run them with package cniexec
	Reached func(name string) // called after each write and each plugin, for tests; nil = not called
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Dirs are directories. All paths are as this process sees them, except CNIBinDirs.
type Dirs struct {
	StateDir      string   // claim records, on a disk that survives reboots
	CacheDir      string   // libcni's cache, used by this process only
	CDIDir        string   // CDI specs of the container runtime, /var/run/cdi
	DeviceInfoDir string   // device-info files, /var/run/k8s.cni.cncf.io/devinfo/cni
	CNIBinDirs    []string // directories of CNI plugins, below HostRoot
}

// Retries are limits and intervals. 0 selects the default.
type Retries struct {
	DelMaxFailures  int           // failures after which a DEL is given up, if its network namespace no longer exists
	DelMinRetryTime time.Duration // time over which these failures are spread
	UndeletedEvery  time.Duration // interval of retries of DELs that were given up, and of searches for leftover leases
	Sweep           time.Duration // interval between checks of all claims
	Hold            time.Duration // time that the container runtime waits for networks; fills by holdShare of the passing time
}

const (
	DefaultDelMaxFailures  = 5
	DefaultDelMinRetryTime = 2 * time.Minute
	DefaultHold            = 500 * time.Millisecond
	holdShare              = 0.05
)

// Engine attaches the pods of this node to the networks of their claims. It is safe for concurrent use.
type Engine struct {
	Options Options
	Node    *devices.Node
	*worker
	waiting *nri.Budget
}

// Metadata writes the device metadata of a request (KEP-5304). [kubeletplugin.Helper] implements it.
type Metadata interface {
	UpdateRequestMetadata(ctx context.Context, namespace, claim string, uid types.UID, request string, devices []kubeletplugin.Device) error
}

// New locks the state directory for this process and reads the claim records. No CNI plugin runs before [Engine.Run].
func New(o Options) (*Engine, error) {
	o.DelMaxFailures = cmp.Or(o.DelMaxFailures, DefaultDelMaxFailures)
	o.DelMinRetryTime = cmp.Or(o.DelMinRetryTime, DefaultDelMinRetryTime)
	o.UndeletedEvery = cmp.Or(o.UndeletedEvery, time.Hour)
	o.Sweep = cmp.Or(o.Sweep, time.Minute)
	if o.Reached == nil {
		o.Reached = func(string) {}
	}
	kind := o.Driver + "/claim"
	if err := cdispec.CheckKind(kind); err != nil {
		return nil, fmt.Errorf("driver %q: %w", o.Driver, err)
	}
	files, err := state.Open(o.StateDir)
	if err != nil {
		return nil, err
	}
	t := &table{
		netns: o.Netns, bootID: o.BootID, queue: workqueue.NewTypedDelayingQueue[string](), stopped: make(chan struct{}), changed: make(chan struct{}),
		claims: map[string]*claim{}, problems: map[string]state.Problem{}, sandboxes: map[string]*sandbox{}, goneNetns: map[string]bool{},
	}
	o.Devices.Driver, o.Devices.StateDir, o.Devices.BootID = o.Driver, o.StateDir, o.BootID
	o.Devices.Metrics, o.Devices.Log, o.Devices.Reached = o.Metrics, o.Log, o.Reached
	e := &Engine{Options: o, Node: devices.New(o.Devices, t)}
	limits := workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, 5*time.Minute)
	does := &steps{
		options: o, table: t, files: files, node: e.Node, metrics: newMetrics(o.Metrics, e.Census),
		reports: &reports{o, t, workqueue.NewTypedRateLimitingQueue(limits)},
		notices: &notices{notify: o.Notify, sentAt: map[Notice]time.Time{}},
		gate: &gate{table: t, written: map[string]written{}, Gate: network.Gate{
			Kind: kind, Specs: store.Open(o.CDIDir), Hook: o.Gate, HostRoot: o.HostRoot, Unexposed: o.Unexposed, Node: e.Node, Reached: o.Reached, Log: o.Log,
		}},
		networks: &network.Runner{
			CacheDir: o.CacheDir, CNIBinDirs: o.CNIBinDirs, HostRoot: o.HostRoot, Node: e.Node, Exec: o.Exec, Reached: o.Reached, Log: o.Log,
			Namespaces: network.Namespaces{Check: o.Netns},
		},
		opened: func(string) {},
	}
	e.worker = &worker{does, map[lane]int{}, map[lane][]*claim{}, make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	e.waiting = nri.NewBudget(cmp.Or(o.Hold, DefaultHold), holdShare, 0, func(t time.Duration) { does.metrics.held.Add(t.Seconds()) })
	if err := does.load(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// SetMetadata enables device metadata. Call it before any other method.
func (e *Engine) SetMetadata(m Metadata) { e.gate.metadata = m }

// SetOpened sets a function that is called with the device of a network after its gate has opened, if containers may have
// waited for it. Call it before any other method.
func (e *Engine) SetOpened(opened func(device string)) { e.worker.opened = opened }

// Run executes the pending steps of all claims, after events and every [Retries.Sweep], and writes their status. It
// returns after ctx has ended and all CNI plugins have exited. Call it only once.
func (e *Engine) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { e.reports.run(ctx) })
	background.Go(e.worker.run)
	background.Go(func() { wait.UntilWithContext(ctx, e.readIdle, e.Options.Sweep) })
	background.Go(func() { wait.UntilWithContext(ctx, e.collectLeases, e.Options.UndeletedEvery) })
	wait.UntilWithContext(ctx, func(context.Context) { e.table.sweep() }, e.Options.Sweep)
	e.table.do(func() { e.table.stopping = true })
	e.table.queue.ShutDown()
	background.Wait()
	close(e.table.stopped)
}

func (e *Engine) collectLeases(context.Context) {
	if err := devices.CollectLeases(e.Options.Devices.Journal, e.IsOnRecord); err != nil {
		e.Options.Log.Error("cannot release leases of deleted claims", "error", err)
	}
}

// ServeNRI keeps the engine connected to the runtime's NRI socket until ctx ends. index has two digits.
func (e *Engine) ServeNRI(ctx context.Context, socket, index string) {
	o := e.Options
	nri.Plugin{Handler: e, Name: o.Driver, Index: index, Socket: socket, Connected: e.SetConnected, Log: o.Log}.Serve(ctx)
}

// Configure subscribes to the start and end of sandboxes, and to containers.
func (e *Engine) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	e.Options.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return api.MustParseEventMask("RunPodSandbox,StopPodSandbox,RemovePodSandbox,CreateContainer"), nil
}

// SetConnected records whether NRI is connected: see [nri.Plugin]. While it is not, the engine misses the end of sandboxes.
func (e *Engine) SetConnected(away error) {
	e.table.do(func() { e.table.synced, e.table.away = e.table.synced && away == nil, away })
	e.metrics.connected.Set(map[bool]float64{true: 1}[away == nil])
}

// Connected returns an error unless NRI is connected and the runtime has listed its sandboxes. Before the list, a sandbox may
// start without a call of the engine, and then is in the list.
func (e *Engine) Connected() error {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	if e.table.synced {
		return nil
	}
	return cmp.Or(e.table.away, errors.New("the container runtime has not listed its sandboxes yet"))
}

// Ready returns an error if a claim could not be prepared, because a directory for its files is not writable or is full.
func (e *Engine) Ready() error {
	err := cmp.Or(e.worker.files.Writable(), e.gate.Specs.Writable())
	if j := e.Options.Devices.Journal; err == nil && j != nil {
		err = j.Writable()
	}
	return err
}

// Close unlocks the state directory. Call it after Run has returned.
func (e *Engine) Close() error {
	e.table.queue.ShutDown()
	e.reports.queue.ShutDown()
	e.worker.networks.Namespaces.CloseAll()
	return e.worker.files.Close()
}

// Records returns the records of all claims, and the records that cannot be read.
func (e *Engine) Records() (claims []*state.Claim, problems []state.Problem) {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	for _, c := range e.table.claims {
		claims = append(claims, c.record)
	}
	return claims, slices.Collect(maps.Values(e.table.problems))
}

// IsOnRecord reports whether a claim has a record, even an unreadable one.
func (e *Engine) IsOnRecord(uid string) bool {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	_, unreadable := e.table.problems[uid]
	return unreadable || e.table.claims[uid] != nil
}

func (e *Engine) Census() Census {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	census := Census{Phases: map[string]int{}}
	for _, c := range e.table.claims {
		for _, at := range slices.Concat(c.record.Attachments, c.record.Undeleted) {
			census.Phases[string(at.Phase)]++
		}
		if c.record.StatusOwed {
			census.PendingStatus++
		}
	}
	return census
}
