// Package inject is an NRI plugin that gives containers the device information of their pod's network
// attachments. The pod does not change. A container gets a directory of device-info files, variables with
// their paths, and the device nodes and socket directories that package grant allows. docs/injection.md
// shows an example.
//
// The files, in the order of a request:
//
//   - plugin.go handles the runtime's requests and decides about each container.
//   - source.go reads the pod's attachments from the journal, the device-info files and the kernel, and encodes
//     the files for containers.
//   - stage.go writes the copies that containers mount, one directory for each sandbox.
//   - adjustment.go collects the additions to a container and skips those that it already has.
//   - disagree.go compares the variables of device plugins with the pod's networks. It has no side effects.
//   - refresh.go updates the copies when the journal changes and removes them with the sandbox.
//     It needs only the state on disk, so it continues after a crash.
package inject

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/host/link"
)

// PluginName is the plugin's name in NRI, without the index. The runtime's list of required plugins and the
// annotation required-plugins.noderesource.dev contain it.
const PluginName = "devinfo-agent"

// MissingInfo is the policy for a container whose device information is missing. A container whose pod
// requires the information is always rejected.
type MissingInfo string

const (
	Allow  MissingInfo = "allow"  // the container is created with the available information
	Reject MissingInfo = "reject" // the container is not created, and the kubelet retries
)

// Config configures a Plugin.
type Config struct {
	Socket string // path of the container runtime's NRI socket
	Index  string // two digits: this plugin's position among the runtime's NRI plugins

	// StageDir is the absolute path of the directory for the files that containers mount, preferably on a tmpfs.
	// The host must have it at the same path. Only one agent may use it. Its parent directories must be searchable
	// by all users, because pods may have user namespaces.
	StageDir string
	HostRoot string // where the host's root filesystem is mounted, to look up device nodes; "" = /

	Node      func() (config.Node, error)              // the node's current settings, called for each container
	BootID    string                                   // ID of the running kernel: see journal.BootID
	Finder    *discovery.Finder                        // must be able to enter the host's network namespaces
	NetnsGone func(path string) (gone bool, err error) // nil = link.NetnsGone

	MissingInfo MissingInfo
	Only        []string      // path.Match patterns of the namespaces whose pods get device information; empty = all
	Except      []string      // path.Match patterns of the namespaces whose pods get none
	Interval    time.Duration // between comparisons of the copies with the journal; 0 = 2 s

	Connected func(away error) // see [nri.Plugin]
	Metrics   Metrics
	Log       *slog.Logger
}

// Metrics counts the events of a Plugin.
type Metrics interface {
	Decided(Decision, Reason, time.Duration) // one call for each container, with the time that the decision took
	Withheld(Withheld)                       // one call for each withheld device node or mount
	Disagrees(Disagreement)                  // one call for each variable of a device plugin that contradicts the pod's networks
	Waited(time.Duration)                    // one call for each decision that takes long, with the time that the runtime waited for the node
	Staged(sandboxes int)                    // called after each refresh with the number of staged sandboxes
}

// Decision is the result for one container.
type Decision string

const (
	Nothing  Decision = "nothing"  // the pod has no attachments
	Off      Decision = "off"      // the pod's namespace or annotation disables injection
	Injected Decision = "injected" // the container gets the information of all its pod's attachments
	Allowed  Decision = "allowed"  // the container is created although information is missing
	Rejected Decision = "rejected" // the container is not created
)

// Reason explains the decisions Allowed and Rejected. It is "" for the other decisions.
type Reason string

const (
	FileGone Reason = "file"     // a device-info file of ADD is missing or unreadable
	Required Reason = "required" // an interface that the pod requires has no device information
	Failed   Reason = "failed"   // the agent could not read the journal, the settings or the kernel, or could not write the copies
	Late     Reason = "late"     // the budget for waiting was used up before the decision was complete
)

// Withheld is the reason why a container does not get a device node or mount.
type Withheld string

const (
	ByPolicy        Withheld = "policy"        // package grant refuses it
	ByUserNamespace Withheld = "userNamespace" // it would not work in the pod's user namespace
	ByMount         Withheld = "mount"         // it conflicts with a mount of the pod
	ByPropagation   Withheld = "propagation"   // a mount of the pod would propagate it to the node
)

// Disagreement is the kind of difference between a container's device variables and its pod's networks.
type Disagreement string

const (
	OtherDevice Disagreement = "device" // a device does not belong to any network of the pod
	OtherOrder  Disagreement = "order"  // the devices and the interfaces have different orders
)

// Plugin is an NRI plugin that injects device information into containers.
type Plugin struct {
	Config
	stage   stage
	waiting *nri.Budget

	hangs atomic.Bool // no decision has ended since one was given up

	staging  sync.Mutex       // held from reading entries until the copies are written
	stagings atomic.Int64     // so far
	staged   map[string]int64 // number of the last staging of each sandbox

	mu    sync.Mutex
	ended map[string]bool // removed sandboxes whose directories refresh has not handled yet
	known map[string]bool // sandboxes that the runtime has named since it connected; nil before the first connection
	since time.Time       // time of the last connection

	warned map[string]string // last logged error by its source
}

// New returns a Plugin with the given configuration. It has no side effects.
func New(c Config) *Plugin {
	c.Interval = cmp.Or(c.Interval, 2*time.Second)
	if c.NetnsGone == nil {
		c.NetnsGone = link.NetnsGone
	}
	return &Plugin{
		Config: c, waiting: nri.NewBudget(hold, holdShare, hold/2, func(took time.Duration) { c.Metrics.Waited(took) }), stage: stage{root: filepath.Clean(c.StageDir)},
		staged: map[string]int64{}, ended: map[string]bool{}, warned: map[string]string{},
	}
}

// Run connects to the runtime, and waits for it if necessary. It keeps the staged copies up to date until ctx ends. The
// directories that containers have mounted remain.
func (p *Plugin) Run(ctx context.Context) error {
	if err := p.stage.open(); err != nil {
		return err
	}
	var keeping sync.WaitGroup
	keeping.Go(func() { p.keep(ctx) })
	nri.Plugin{Handler: p, Name: PluginName, Index: p.Index, Socket: p.Socket, Connected: p.Connected, Log: p.Log}.Serve(ctx)
	keeping.Wait()
	return nil
}
