package claim

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/prometheus/client_golang/prometheus"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/status"
)

// Options configure an [Engine]. A field is required unless it says otherwise.
type Options struct {
	Driver string           // name of the DRA driver, also the vendor of the CDI devices
	Policy cniconfig.Policy // which configurations claims may contain
	Dirs
	Retries
	Gate     string // path of the program cni-dra-gate on the host; "" = containers of other sandboxes are not kept out
	HostRoot string // root directory of CNI plugins; "" = the root of this process
	BootID   string // of the kernel: [journal.BootID]
	Node     *devices.Node

	Netns     func(path string) error      // [link.CheckNetns]
	Unexposed func(root, dir string) error // [private.UnexposedBelow]
	// Status sends the devices of a claim to the API server. It is called until it succeeds or has become
	// pointless: see [status.Retry].
	Status func(context.Context, status.Report) error
	// Read reads a claim from the API server. It returns nil if the claim was deleted, or if its name is
	// another claim's.
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

// Retries say how often something is tried; 0 = the default.
type Retries struct {
	DelTries       int           // failures after which a DEL is given up whose network namespace is gone
	DelPatience    time.Duration // in which these tries are made
	AbandonedEvery time.Duration // between two tries of a DEL that was given up, and two looks for leftover leases
	Sweep          time.Duration // between two looks at all claims
}

// Defaults of [Retries].
const (
	DefaultDelTries       = 5
	DefaultDelPatience    = 2 * time.Minute
	DefaultAbandonedEvery = time.Hour
	DefaultSweep          = time.Minute
)

// PluginLimit is how long a CNI plugin may run before it is killed: longer than the kubelet waits for a
// sandbox.
const PluginLimit = 4 * time.Minute

func (o Options) withDefaults() Options {
	o.DelTries = cmp.Or(o.DelTries, DefaultDelTries)
	o.DelPatience = cmp.Or(o.DelPatience, DefaultDelPatience)
	o.AbandonedEvery = cmp.Or(o.AbandonedEvery, DefaultAbandonedEvery)
	o.Sweep = cmp.Or(o.Sweep, DefaultSweep)
	if o.Step == nil {
		o.Step = func(string) {}
	}
	return o
}
