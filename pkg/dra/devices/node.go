// Package devices offers the devices of this node to the scheduler, and prepares allocated devices for pods: it leases
// them, records their settings, binds them to kernel drivers, and restores them after use.
//
// It does not know sandboxes and makes no decisions about claims. It reads the claims from the snapshot that
// [Claims] returns.
//
// The mutex of a [Node] is never held during a call that reads files or the journal, or that calls [Claims].
package devices

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/sysfs"
)

// SoftwareDevice is the device of networks without hardware. All claims of a node share it.
const SoftwareDevice = "cni"

type Options struct {
	Driver   string // name of the DRA driver
	StateDir string // directory of [state.Offer]
	BootID   string // boot ID of the kernel: [journal.BootID]

	Inventory *Inventory        // nil = the driver offers no devices of the node
	Finder    *discovery.Finder // describes devices; nil = devices have no description
	// DeviceNodes are the device nodes of the node; nil = containers get none. They need Finder, and Settings, which returns
	// which ones containers may get, and may change its answer at any time.
	DeviceNodes grant.Nodes
	Settings    func() (config.Node, error)

	// NUMANode is the form in which ResourceSlices and metadata have the NUMA node. A list needs the feature gate
	// DRAListTypeAttributes of the API server and the scheduler.
	NUMANode deviceattribute.AttributeForm

	// Custody and Journal are nil if the offered devices come from a capture. These devices are neither changed nor
	// leased.
	Custody *restore.Devices
	Journal *journal.Journal
	Lineage func(device string) ([]sysfs.Object, error) // [sysfs.FS.Lineage] of the node; required with Journal

	// DevicePluginDir is the directory of the device-info files of device plugins. The driver writes files there for
	// devices that Multus attaches. It writes none if DevicePluginDir is "" or Journal is nil.
	DevicePluginDir string
	// Advertised reports whether a running device plugin offers a device under a resource name. It is required with
	// DevicePluginDir.
	Advertised func(ctx context.Context, resource, device string) (bool, error)

	Metrics prometheus.Registerer
	Log     *slog.Logger
	Reached func(name string) // called after each write to a device
}

// Inventory configures which devices of the node are offered.
type Inventory struct {
	Rules  inventory.Rules
	File   string                                           // path of the rules file, for messages
	Host   func() (inventory.Host, error)                   // reads the node
	Events func(context.Context) (<-chan struct{}, error)   // sends when the node may have changed, and is closed after a failure
	Settle time.Duration                                    // time for which events are collected, because VFs appear one by one
	Poll   time.Duration                                    // interval between reads without events
	Labels func(context.Context) (map[string]string, error) // reads the labels of this Node object; required if Rules select nodes
	// Others returns the devices that were allocated outside DRA: see [inventory.DecideInput]. If it cannot determine
	// them, it returns an error and the last known devices. The driver then prepares no exclusive device.
	Others       func(context.Context) (map[string]string, error)
	Waits        func() time.Duration // time until Others may return fewer devices; 0 = no change is expected
	EvictLost    bool                 // evict pods whose device no longer exists on the node
	CarrierGrace time.Duration        // time without carrier until a device counts as unhealthy
}

// Holder is an attachment in the record of a claim. It must not be changed.
type Holder struct {
	Claim, Name string // UID, and namespace/name
	Attachment  *state.Attachment
	Has         bool // a plugin or a pod may have the device
}

type Claims interface {
	// Holders returns the attachments with the device of an attachment, itself and undeleted ones too; nil = those of all.
	Holders(of *state.Attachment) []Holder
	PodIn(netns string) string // namespace/name of the pod with this network namespace; "" = unknown
}

// Node represents the devices of this node. Its methods may be called concurrently, except [Node.Slices].
type Node struct {
	Options
	Leases    Leases
	claims    Claims
	changed   chan struct{} // has a value when the slices may need publishing again
	unshared  atomic.Bool   // the API server drops the fields for shared devices
	untainted atomic.Bool   // devices with taints are left out, because the API server drops taints

	// Metrics, documented in docs/dra/reference.md.
	unmatched  *prometheus.GaugeVec
	mismatches *prometheus.CounterVec // by one of [restore.SettingNames]

	oldKernel sync.Once // the first device on a kernel without ethtool's netlink interface

	// Only Slices uses the next two.
	left       *state.Offer // last offer that was written
	nextLabels time.Time    // earliest time of the next read of the Node object's labels

	selected atomic.Pointer[inventory.Rules] // rules that apply to this node; nil = its labels are not known yet
	last     atomic.Pointer[survey]          // last published survey

	mu            sync.Mutex
	again         *time.Timer       // publishes
	due           time.Time         // when again does so; zero = never
	unknown       error             // why the result of Others is incomplete; nil = it is complete
	problems      map[string]string // by device, for the author of its pod; "" = healthy
	examined      time.Time         // time of problems
	healthChanged chan struct{}     // closed and replaced when problems changes
}

// never is the wait for a publication that is not needed.
const never = time.Duration(math.MaxInt64)

// New returns a Node of the devices that claims hold.
func New(o Options, claims Claims) *Node {
	n := &Node{Options: o, claims: claims, changed: make(chan struct{}, 1), healthChanged: make(chan struct{})}
	n.register()
	n.Leases.node = n
	n.again = time.AfterFunc(never, func() {
		n.mu.Lock()
		n.due = time.Time{}
		n.mu.Unlock()
		n.Publish()
	})
	n.last.Store(&survey{})
	if o.Inventory != nil && !o.Inventory.Rules.SelectNodes() {
		n.selected.Store(&o.Inventory.Rules)
	}
	return n
}

// Changed returns a channel that has a value when the slices may need publishing again.
func (n *Node) Changed() <-chan struct{} { return n.changed }

func (n *Node) Publish() {
	select {
	case n.changed <- struct{}{}:
	default: // a request is pending
	}
}

// publishIn publishes after a time at most.
func (n *Node) publishIn(wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at := time.Now().Add(wait); n.due.IsZero() || at.Before(n.due) {
		n.due = at
		n.again.Reset(wait)
	}
}

// WithoutSharing records that the API server does not support shared devices. It reports true at the first call.
func (n *Node) WithoutSharing() bool { return !n.unshared.Swap(true) }

// WithoutTaints records that the API server does not support taints. It reports true at the first call.
func (n *Node) WithoutTaints() bool { return !n.untainted.Swap(true) }

// Sharing reports whether the API server supports shared devices. It reports true until [Node.WithoutSharing].
func (n *Node) Sharing() bool { return !n.unshared.Load() }

// OthersKnown returns why the devices allocated outside DRA are unknown; nil = they are known.
func (n *Node) OthersKnown() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.unknown
}

// Watch publishes the slices again after events of the node, until ctx ends.
func (n *Node) Watch(ctx context.Context) {
	if n.Inventory == nil {
		return
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		events, err := n.Inventory.Events(ctx)
		for open := err == nil; open; {
			select {
			case <-ctx.Done():
			case _, open = <-events:
				n.publishIn(n.Inventory.Settle)
			}
			if ctx.Err() != nil {
				return
			}
		}
		n.Log.Error("cannot watch the node's devices, only poll them", "retryIn", n.Inventory.Poll, "error", cmp.Or(err, errors.New("a socket has failed")))
	}, n.Inventory.Poll)
}

// register makes the metrics.
func (n *Node) register() {
	in := promauto.With(n.Metrics)
	gauge := func(name, help string) prometheus.GaugeOpts { return prometheus.GaugeOpts{Name: name, Help: help} }
	number := map[bool]float64{true: 1}
	in.NewGaugeFunc(gauge("devinfo_dra_sharing_supported", "0 if the API server cannot share devices among claims, which needs Kubernetes 1.36; else 1."),
		func() float64 { return number[n.Sharing()] })
	in.NewGaugeFunc(gauge("devinfo_dra_external_allocations_known", "1 while the driver knows which devices are allocated outside DRA (device plugins, Multus, sriov-cni), else 0."),
		func() float64 { return number[n.OthersKnown() == nil] })
	n.unmatched = in.NewGaugeVec(gauge("devinfo_dra_unmatched_rules", "1 for each rule of --devices that no device of this node matches, with the device that comes nearest."), []string{"rule", "nearest"})
	n.mismatches = in.NewCounterVec(prometheus.CounterOpts{Name: "devinfo_dra_device_mismatches_total", Help: "Device settings that still differed from their pre-ADD value after DEL, by setting and whether the driver restored them."}, []string{"setting", "restored"})
}

// numaLists replaces the attribute numaNode of devices by a list if [Options].NUMANode selects that. Rules and records
// always have the number, so that they outlive a change of the option.
func (n *Node) numaLists(list []resourceapi.Device) []resourceapi.Device {
	known := map[int64]resourceapi.DeviceAttribute{} // a thousand VFs are on few nodes
	for i := range list {
		node := list[i].Attributes[inventory.NUMANode].IntValue
		if node == nil || n.NUMANode != deviceattribute.ListAttribute {
			continue
		}
		if _, ok := known[*node]; !ok {
			known[*node] = n.numaList(*node)
		}
		list[i].Attributes = maps.Clone(list[i].Attributes)
		list[i].Attributes[inventory.NUMANode] = known[*node]
	}
	return list
}

// numaList returns a NUMA node, and after it the other nodes of its socket that are nearest to it (KEP-6072).
func (n *Node) numaList(node int64) resourceapi.DeviceAttribute {
	// More values would exceed the API's limit for a device that has the most attributes.
	const most = 1 + resourceapi.ResourceSliceMaxAttributeValuesPerDevice - resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	list := []int64{node}
	if n.Finder != nil {
		if sys, ok := n.Finder.Sys.Files().(fs.ReadLinkFS); ok {
			a, err := deviceattribute.GetNUMANodeAttribute(int(node), deviceattribute.ListAttribute, deviceattribute.WithFS(sys))
			if err == nil {
				list = a.Value.IntValues
			}
		}
	}
	return resourceapi.DeviceAttribute{IntValues: list[:min(len(list), most)]}
}
