// Package devices offers the devices of this node to the scheduler, and prepares the allocated ones for
// pods: it leases them, notes their settings, binds them to kernel drivers, and restores them after use.
//
// It knows no sandbox and takes no decision about claims. What it has to know of them it reads from the
// snapshot that [Claims] gives.
//
// The mutex of a [Node] is never held while a file is read, the journal is asked, or [Claims] is called.
package devices

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/sysfs"
)

// SoftwareDevice is the device of networks without hardware. All claims of a node share it.
const SoftwareDevice = "cni"

// Options configure a [Node].
type Options struct {
	Driver   string // name of the DRA driver
	StateDir string // where [state.Offer] is written
	BootID   string // of the kernel: [journal.BootID]

	Inventory *Inventory        // nil = none of the node's devices is offered
	Finder    *discovery.Finder // describes devices; nil = none is described
	Granter   *grant.Granter    // chooses device nodes and mounts; nil = containers get none

	// Custody and Journal are nil where the offered devices are those of a captured host, which are
	// neither changed nor leased.
	Custody *restore.Devices
	Journal *journal.Journal
	Lineage func(device string) ([]sysfs.Object, error) // [sysfs.FS.Lineage] of the node; required with Journal

	// DevicePluginDir is the directory of device plugins' device-info files. The driver writes files there for the
	// devices that Multus attaches; "" or no Journal = it writes none.
	DevicePluginDir string
	// Advertised reports whether a running device plugin offers a device under a resource name. It is required with
	// DevicePluginDir.
	Advertised func(ctx context.Context, resource, device string) (bool, error)

	Metrics prometheus.Registerer
	Log     *slog.Logger
	Step    func(name string) // called after each write to a device; nil = not called
}

// Inventory says which of the node's devices are offered.
type Inventory struct {
	Rules  inventory.Rules
	File   string                                         // path of the rules, for messages
	Digest string                                         // of that file: see [state.Offer]
	Host   func() (inventory.Host, error)                 // reads the node
	Events func(context.Context) (<-chan struct{}, error) // sends whenever the node may have changed, until the context ends
	Times  inventory.Times
	Labels func(context.Context) (map[string]string, error) // reads the labels of this Node object; required if Rules select nodes
	// Others returns the devices that were allocated outside DRA: see [inventory.Situation]. Beside an
	// error it returns what was known before; no exclusive device is prepared then.
	Others       func(context.Context) (map[string]string, error)
	Waits        func() time.Duration // after how long Others may return fewer devices; 0 = no change is expected
	EvictLost    bool                 // evict the pods of devices that have gone from the node
	CarrierGrace time.Duration        // for how long a device without carrier counts as healthy
}

// Holder is an attachment, in the record of a claim.
type Holder struct {
	Claim      types.UID
	Attachment *state.Attachment
}

// Claims are the claims on record.
type Claims interface {
	Holders() []Holder           // the attachments of all claims, the undeleted ones too
	OnRecord(uid types.UID) bool // whether a claim has a record, readable or not
	PodIn(netns string) string   // the pod that has a network namespace, as namespace/name; "" = unknown
}

// Node is the devices of this node. Its methods may be called concurrently.
type Node struct {
	Options
	Leases   Leases
	claims   Claims
	changed  chan struct{} // has a value when the slices may have to be published again
	metrics  *metrics
	left     atomic.Pointer[state.Offer] // last one written
	unshared atomic.Bool                 // the API server drops what shared devices need

	mu      sync.Mutex
	last    survey      // that was last published
	unknown error       // why Others is incomplete; nil = it is complete
	again   *time.Timer // calls Others again; nil = the poll does
	health  health

	labels       nodeLabels
	carriers     map[string]carrier // by device
	carriersRead time.Time
	damped       *time.Timer // publishes when the first delay of carriers ends
}

// New returns the devices of a node. Call [Node.Use] before anything else.
func New(o Options) *Node {
	if o.Step == nil {
		o.Step = func(string) {}
	}
	return &Node{
		Options: o, Leases: Leases{journal: o.Journal, lineage: o.Lineage, pluginDir: o.DevicePluginDir}, metrics: newMetrics(o.Metrics), changed: make(chan struct{}, 1),
		health: health{changed: make(chan struct{})},
	}
}

// Use sets where the node reads claims.
func (n *Node) Use(claims Claims) { n.claims, n.Leases.claims = claims, claims }

// Changed receives a value when the slices may have to be published again.
func (n *Node) Changed() <-chan struct{} { return n.changed }

// Publish has the slices published again.
func (n *Node) Publish() {
	select {
	case n.changed <- struct{}{}:
	default: // it is pending
	}
}

// WithoutSharing notes that the API server does not support shared devices. It reports whether that is news.
func (n *Node) WithoutSharing() bool {
	n.metrics.sharing.Set(0)
	return !n.unshared.Swap(true)
}

// Sharing reports whether the API server supports shared devices, for all that is known.
func (n *Node) Sharing() bool { return !n.unshared.Load() }

// OthersKnown returns why it is unknown which devices were allocated outside DRA; nil = it is known.
func (n *Node) OthersKnown() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unknown
}

// Watch has the slices published again whenever the node may have changed, until ctx ends.
func (n *Node) Watch(ctx context.Context) {
	if n.Inventory == nil {
		return
	}
	events, err := n.Inventory.Events(ctx)
	if err != nil {
		n.Log.Error("cannot watch the node's devices: they are only polled", "interval", n.Inventory.Times.Poll, "error", err)
	}
	inventory.Watch(ctx, events, n.Inventory.Times, func(context.Context) { n.Publish() })
}

// metrics are described in docs/dra/README.md.
type metrics struct {
	sharing    prometheus.Gauge
	known      prometheus.Gauge
	idle       *prometheus.GaugeVec
	mismatches *prometheus.CounterVec // by one of [restore.Whats]
}

func newMetrics(to prometheus.Registerer) *metrics {
	in := promauto.With(to)
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	m := &metrics{
		sharing:    in.NewGauge(gauge("devinfo_dra_sharing_supported", "0 if the API server cannot share devices among claims, which needs Kubernetes 1.36; else 1.")),
		known:      in.NewGauge(gauge("devinfo_dra_external_allocations_known", "1 while the driver knows which devices are allocated outside DRA (device plugins, Multus, sriov-cni), else 0.")),
		idle:       in.NewGaugeVec(gauge("devinfo_dra_unmatched_rules", "1 for each rule of --devices that no device of this node matches, with the device that comes nearest."), []string{"rule", "nearest"}),
		mismatches: in.NewCounterVec(prometheus.CounterOpts{Name: "devinfo_dra_device_mismatches_total", Help: "Device settings that still differed from their pre-ADD value after DEL, by setting and whether the driver restored them."}, []string{"setting", "restored"}),
	}
	m.known.Set(1)
	m.sharing.Set(1)
	return m
}
