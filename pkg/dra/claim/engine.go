package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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
)

// Options configure an [Engine]. A field is required unless it says otherwise.
type Options struct {
	Driver string           // name of the DRA driver, also the vendor of the CDI devices
	Policy cniconfig.Policy // which configurations claims may contain
	Dirs
	Retries
	Gate     string // path of the program cni-dra-gate on the host, which keeps out containers of other sandboxes
	HostRoot string // root directory of CNI plugins; "" = the root of this process
	BootID   string // of the kernel: [journal.BootID]
	Node     *devices.Node

	Netns     func(path string) error      // [link.CheckNetns]
	Unexposed func(root, dir string) error // [private.UnexposedBelow]
	// Status sends the devices of a claim to the API server. It is called again as [status.Retry] says.
	Status func(context.Context, status.Report) error
	// Read reads a claim from the API server. It returns nil if no claim has this name and UID.
	Read   func(ctx context.Context, claim kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error)
	Notify func(Notice)

	Exec    invoke.Exec       // runs CNI plugins; nil = package cniexec does
	Step    func(name string) // called after each write and each run of a plugin; nil = not called
	Metrics prometheus.Registerer
	Log     *slog.Logger
}

// Dirs are directories as this process sees them, but for CNIBinDirs.
type Dirs struct {
	StateDir      string   // of package state, on a disk that survives reboots
	CacheDir      string   // of libcni, for this process alone
	CDIDir        string   // of the container runtime's CDI specs, /var/run/cdi
	DeviceInfoDir string   // /var/run/k8s.cni.cncf.io/devinfo/cni
	CNIBinDirs    []string // of CNI plugins, below HostRoot
}

// Retries are limits and intervals; 0 = the default.
type Retries struct {
	DelMaxFailures  int           // failures after which a DEL is given up whose network namespace is gone
	DelMinRetryTime time.Duration // in which these tries are made
	UndeletedEvery  time.Duration // between two tries of a DEL that was given up, and two looks for leftover leases
	Sweep           time.Duration // between two looks at all claims
}

// Defaults of [Retries].
const (
	DefaultDelMaxFailures  = 5
	DefaultDelMinRetryTime = 2 * time.Minute
	DefaultUndeletedEvery  = time.Hour
	DefaultSweep           = time.Minute
)

// PluginLimit is how long a CNI plugin may run before it is killed. The kubelet waits less long for a sandbox.
const PluginLimit = 4 * time.Minute

// Engine attaches the pods of this node to the networks of their claims. It is safe for concurrent use.
type Engine struct {
	Options
	table    *table
	records  *records
	gate     *gate
	reports  *reports
	notices  *notices
	steps    *steps
	worker   *worker
	reserved *reservations
	metrics  *metrics
}

// Metadata writes the device metadata of a request (KEP-5304): a [*kubeletplugin.Helper] does.
type Metadata interface {
	UpdateRequestMetadata(ctx context.Context, namespace, claim string, uid types.UID, request string, devices []kubeletplugin.Device) error
}

// New reads the state directory and locks it for this process. It runs nothing before [Engine.Run].
func New(o Options) (*Engine, error) {
	o.DelMaxFailures = cmp.Or(o.DelMaxFailures, DefaultDelMaxFailures)
	o.DelMinRetryTime = cmp.Or(o.DelMinRetryTime, DefaultDelMinRetryTime)
	o.UndeletedEvery = cmp.Or(o.UndeletedEvery, DefaultUndeletedEvery)
	o.Sweep = cmp.Or(o.Sweep, DefaultSweep)
	if o.Step == nil {
		o.Step = func(string) {}
	}
	kind := o.Driver + "/claim"
	if err := cdispec.CheckKind(kind); err != nil {
		return nil, fmt.Errorf("driver %q: %w", o.Driver, err)
	}
	files, err := state.Open(o.StateDir)
	if err != nil {
		return nil, err
	}
	e := &Engine{Options: o, table: newTable(o.Netns, o.BootID)}
	o.Node.Use(e.table)
	e.metrics = newMetrics(o.Metrics, e.Census)
	e.notices = &notices{notify: o.Notify, sentAt: map[Notice]time.Time{}}
	e.reports = &reports{o, e.table, workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.UID](500*time.Millisecond, 5*time.Minute))}
	e.records = &records{Options: o, table: e.table, files: files, reports: e.reports}
	e.gate = &gate{Options: o, table: e.table, kind: kind, specs: store.Open(o.CDIDir)}
	e.steps = &steps{
		Options: o, table: e.table, records: e.records, gate: e.gate, reports: e.reports, notices: e.notices, metrics: e.metrics,
		cni: plugins{o},
	}
	e.worker = &worker{Options: o, table: e.table, steps: e.steps}
	e.reserved = &reservations{Options: o, table: e.table}
	if err := e.records.load(); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// SetMetadata enables device metadata. Call it, if at all, before all other methods.
func (e *Engine) SetMetadata(m Metadata) { e.gate.metadata = m }

// Ready returns an error if the state directory cannot be written.
func (e *Engine) Ready() error { return e.records.files.Writable() }

// Close unlocks the state directory for another process. Call it after Run has returned.
func (e *Engine) Close() error {
	e.table.queue.ShutDown()
	e.reports.queue.ShutDown()
	return e.records.files.Close()
}

// Run does what is pending now, after each event and every [Retries.Sweep], and sends status. It returns after
// ctx and all CNI plugins have ended. It may be called once.
func (e *Engine) Run(ctx context.Context) {
	var background sync.WaitGroup
	background.Go(func() { e.reports.run(ctx) })
	background.Go(e.worker.run)
	background.Go(func() { e.collect(ctx) })
	for tick := time.Tick(e.Sweep); ctx.Err() == nil; {
		e.table.sweep()
		select {
		case <-tick:
		case <-ctx.Done():
		}
	}
	e.table.do(func() { e.table.stopping = true })
	e.table.queue.ShutDown()
	background.Wait()
	close(e.table.stopped)
}

// collect ends records and leases of claims that will not be unprepared, until ctx ends.
func (e *Engine) collect(ctx context.Context) {
	sweep, leases := time.Tick(e.Sweep), time.Tick(e.UndeletedEvery)
	e.collectLeases()
	for ctx.Err() == nil {
		e.reserved.readIdle(ctx)
		select {
		case <-sweep:
		case <-leases:
			e.collectLeases()
		case <-ctx.Done():
		}
	}
}

func (e *Engine) collectLeases() {
	if err := e.Node.Leases.Collect(); err != nil {
		e.Log.Error("cannot release leases of deleted claims", "error", err)
	}
}

// Records returns the claims on record, and the claims whose record is unreadable.
func (e *Engine) Records() (claims []*state.Claim, problems []state.Problem) {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	for _, c := range e.table.claims {
		claims = append(claims, c.record)
	}
	return claims, slices.Collect(maps.Values(e.table.problems))
}

// Census counts what is on record.
func (e *Engine) Census() Census {
	e.table.mu.Lock()
	defer e.table.mu.Unlock()
	census := Census{Phases: map[string]int{}, Unreadable: len(e.table.problems)}
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
