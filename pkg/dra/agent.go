package dra

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/private"
)

// Options configure an [Agent]. A field is required unless it says otherwise.
type Options struct {
	Driver string           // DRA driver name, also the vendor of the CDI devices
	Policy cniconfig.Policy // which configurations claims may bring

	StateDir      string   // package state's, on a disk that survives reboots
	CacheDir      string   // libcni's, for this agent alone
	CDIDir        string   // where the container runtime looks for CDI specs, /var/run/cdi
	DeviceInfoDir string   // /var/run/k8s.cni.cncf.io/devinfo/cni
	CNIBinDirs    []string // where CNI plugins are, below HostRoot
	Gate          string   // program cni-dra-gate, as the host sees it, which keeps containers from networks of others; "" = nobody does
	HostRoot      string   // CNI plugins run with this as their root directory; "" = the agent's own

	BootID string                  // of the kernel: journal.BootID
	Netns  func(path string) error // returns nil for a network namespace, link.ErrNoNetns once it is gone; nil = [link.CheckNetns]

	// Unexposed returns an error if others than root can replace what is in a directory, as seen
	// from a root directory; nil = [private.UnexposedBelow].
	Unexposed func(root, dir string) error

	// Status sends the devices of a claim to the API server. The agent repeats it
	// until it succeeds or has become pointless: see [status.Classify].
	Status func(context.Context, status.Report) error
	// Read reads a claim: see [ReadClaim]. nil = the agent goes by Prepare and Unprepare alone.
	Read func(ctx context.Context, claim kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error)
	// Notify tells the author of a pod what is wrong with it; nil = nobody is told.
	Notify func(Notice)

	// Devices are the options of the node's devices. Driver, StateDir, BootID, Metrics, Log and Step are
	// those of the agent.
	Devices devices.Options

	Exec           invoke.Exec           // runs CNI plugins; nil = package cniexec does
	DelTries       int                   // after which a DEL is given up whose namespace is gone; 0 = [DefaultDelTries]
	DelPatience    time.Duration         // in which these are made; 0 = [DefaultDelPatience]
	AbandonedEvery time.Duration         // between two DELs of what was given up, and two looks for leases that are left over; 0 = [DefaultAbandonedEvery]
	Sweep          time.Duration         // between two looks for what is owed, and two reads of claims that no sandbox has; 0 = [DefaultSweep]
	Metrics        prometheus.Registerer // gets what the agent counts; nil = nobody does
	Log            *slog.Logger          // nil = none
}

// PluginLimit is how long one CNI plugin may run, which is then ended: longer than the kubelet
// waits for a sandbox.
const PluginLimit = 4 * time.Minute

// Defaults of [Options].
const (
	DefaultDelTries       = 5
	DefaultDelPatience    = 2 * time.Minute
	DefaultAbandonedEvery = time.Hour
	DefaultSweep          = time.Minute
)

// Metadata writes the device metadata of a request: a [*kubeletplugin.Helper] does.
type Metadata interface {
	UpdateRequestMetadata(ctx context.Context, namespace, claim string, uid types.UID, request string, devices []kubeletplugin.Device) error
}

// Agent attaches the pods of one node to their networks. Its methods may be called at
// once.
type Agent struct {
	Options
	kind     string // of the CDI devices
	state    *state.Store
	specs    *store.Dir
	metadata Metadata // nil = not enabled
	cni      plugins
	reports  workqueue.TypedRateLimitingInterface[types.UID] // claims whose status may be owed

	queue   workqueue.TypedDelayingInterface[types.UID] // of claims to look at, by key
	backOff workqueue.TypedRateLimiter[types.UID]       // of claims, after any failure but a DEL's
	notices notices
	node    *devices.Node
	metrics *metrics
	over    chan struct{} // closed at the end of Run
	step    func(string)  // called after each write and exec, named; nil but in tests

	mu        sync.Mutex
	claims    map[types.UID]*claim
	problems  map[types.UID]state.Problem // of claims whose file could not be used
	sandboxes map[string]*sandbox         // by ID: those that the runtime has told of
	told      int                         // how many sandboxes that were
	up        bool                        // the runtime is connected
	synced    bool                        // it has told of all that it has
	changed   chan struct{}               // closed, and made anew, whenever something has changed
	used      [lanes]int                  // steps under way
	waiting   [lanes]map[*claim]bool      // for room in a lane
	ending    bool                        // no ADD is begun any more
}

// New reads the state directory and takes it for this process: a second agent with the
// same directory is an error. It touches neither networks nor runtime, which is for
// [Agent.Run] and [Agent.ServeNRI].
func New(o Options) (*Agent, error) {
	o = o.withDefaults()
	kind := o.Driver + "/claim"
	if err := cdispec.CheckKind(kind); err != nil {
		return nil, fmt.Errorf("driver %q: %w", o.Driver, err)
	}
	records, err := state.Open(o.StateDir)
	if err != nil {
		return nil, err
	}
	a := &Agent{
		Options: o, kind: kind, state: records,
		specs:   store.Open(o.CDIDir),
		cni:     plugins{dirs: o.CNIBinDirs, root: o.HostRoot, cache: o.CacheDir, limit: PluginLimit, exec: o.Exec, log: o.Log},
		queue:   workqueue.NewTypedDelayingQueue[types.UID](),
		backOff: workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstRetry, longestRetry),
		reports: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](firstReport, longestReport)),
		over:    make(chan struct{}), changed: make(chan struct{}),
		claims: map[types.UID]*claim{}, problems: map[types.UID]state.Problem{}, sandboxes: map[string]*sandbox{},
	}
	o.Devices.Driver, o.Devices.StateDir, o.Devices.BootID = o.Driver, o.StateDir, o.BootID
	o.Devices.Metrics, o.Devices.Log, o.Devices.Step = o.Metrics, o.Log, a.did
	a.node = devices.New(o.Devices)
	a.node.Use(a)
	for l := range a.waiting {
		a.waiting[l] = map[*claim]bool{}
	}
	if err := a.load(); err != nil {
		a.Close()
		return nil, err
	}
	a.metrics = newMetrics(o.Metrics, a.Census)
	return a, nil
}

func (o Options) withDefaults() Options {
	if o.Netns == nil {
		o.Netns = link.CheckNetns
	}
	if o.Unexposed == nil {
		o.Unexposed = private.UnexposedBelow
	}
	o.DelTries = cmp.Or(o.DelTries, DefaultDelTries)
	o.DelPatience = cmp.Or(o.DelPatience, DefaultDelPatience)
	o.AbandonedEvery = cmp.Or(o.AbandonedEvery, DefaultAbandonedEvery)
	o.Sweep = cmp.Or(o.Sweep, DefaultSweep)
	if o.Metrics == nil {
		o.Metrics = prometheus.NewRegistry()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// load takes in what an earlier process left.
func (a *Agent) load() error {
	records, problems, err := a.state.All()
	if err != nil {
		return err
	}
	for _, record := range records {
		a.claims[record.UID] = known(record)
		if record.StatusOwed {
			a.reports.Add(record.UID)
		}
	}
	for _, p := range problems {
		a.problems[p.UID] = p
		a.Log.Error("the state of a claim cannot be used: what it holds of networks stays until someone looks into it",
			"claimUID", p.UID, "error", p.Err, "setAside", p.Aside)
	}
	return nil
}

// SetMetadata enables device metadata. Call it, if at all, before Run and ServeNRI: the
// helper that it takes needs the agent to be made.
func (a *Agent) SetMetadata(m Metadata) { a.metadata = m }

// Ready says what keeps the agent from attaching anything: a state directory that cannot
// be written to.
func (a *Agent) Ready() error { return a.state.Writable() }

// Close unlocks the state directory for another agent, after Run has returned.
func (a *Agent) Close() error {
	a.queue.ShutDown()
	a.reports.ShutDown()
	return a.state.Close()
}

func (a *Agent) did(name string) {
	if a.step != nil {
		a.step(name)
	}
}

// OthersKnown is [devices.Node.OthersKnown].
func (a *Agent) OthersKnown() error { return a.node.OthersKnown() }
