// Package inject gives the containers of a node the device information of their pod's
// network attachments, by NRI, without any change to the pod: a directory of device-info
// files, variables that name them, and the device nodes and socket directories that
// package grant allows. docs/injection.md says what a container sees.
//
// The order to read in:
//
//   - plugin.go: the runtime makes a container, and waits for the answer.
//   - source.go: what journal, files and kernel say of the pod's attachments.
//   - nic.go: the files that come of it. It is pure.
//   - stage.go: the copies that containers mount, one directory for each sandbox.
//   - adjustment.go, mounts.go: what the container gets, and what it has already. They are pure
//     but for what a device is granted.
//   - disagree.go: what the container has from a device plugin that no network has. It is pure.
//   - refresh.go: keeps the copies as the journal has them, and removes them with the
//     sandbox. It knows nothing but what is on disk, so that a crash changes nothing.
package inject

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/nri"
)

// PluginName is the agent's name in NRI, without the index: it is what the runtime's list of
// required plugins and the annotation required-plugins.noderesource.dev name.
const PluginName = "devinfo-agent"

// MissingInfo says whether a container is made although its device information is missing. If
// its pod requires the information, the container is rejected in any case.
type MissingInfo string

const (
	Allow  MissingInfo = "allow"  // it is made with what there is
	Reject MissingInfo = "reject" // it is not made, and the kubelet tries again
)

// Options configure a Plugin.
type Options struct {
	Socket string // NRI's, of the container runtime
	Index  string // two digits that order the plugins of the runtime

	// StageDir, absolute, is a directory of the agent's own for what containers mount, on a
	// tmpfs best. It is made if need be; those above it must let everyone pass, for the sake of
	// user namespaces. Its path is the same on the host. One agent only may use it.
	StageDir string
	// Label is the SELinux label of what is there; "" = every container may read it, where
	// SELinux is on.
	Label string
	// HostRoot is where the host's root is mounted, for its device nodes; "" = /.
	HostRoot string
	// Node gives the node's settings as they are now. It is asked for each container.
	Node func() (config.Node, error)
	// BootID is that of the running kernel: see journal.BootID.
	BootID string
	// Finder finds devices and interfaces. It must see the host's network namespaces.
	Finder *discovery.Finder
	// NetnsGone says whether a network namespace is gone; nil = link.NetnsGone.
	NetnsGone func(path string) (bool, error)

	MissingInfo MissingInfo
	Only        []string      // patterns of path.Match for namespaces: pods elsewhere are given nothing; none = all
	Except      []string      // the same for namespaces whose pods are given nothing
	Interval    time.Duration // after which the files are compared with the journal again; 0 = 2 s

	Connected func(bool) // is told whether the runtime is connected; the same may come again
	Metrics   Metrics
	Log       *slog.Logger
}

// Metrics are told what happens.
type Metrics interface {
	Decided(Decision, Reason, time.Duration) // a container, after that time
	Withheld(Withheld)                       // a thing that a container was not given
	Disagrees(Disagreement)                  // a variable of a device plugin that contradicts the pod's networks
	Staged(sandboxes int)                    // that have a directory
}

// Decision is what became of a container.
type Decision string

const (
	Nothing  Decision = "nothing"  // the pod has no attachments
	Off      Decision = "off"      // its namespace or its annotation says so
	Injected Decision = "injected" // it was given all there is
	Allowed  Decision = "allowed"  // it was made although something is missing
	Rejected Decision = "rejected" // it was not made
)

// Reason is why a container was allowed without all of its information, or rejected.
type Reason string

const ( // "" for the answers that need none
	FileGone Reason = "file"     // a device-info file that ADD wrote is gone, or cannot be read
	Required Reason = "required" // an interface that the pod requires has no device information
	Failed   Reason = "failed"   // journal, settings, kernel or disk failed
	Late     Reason = "late"     // no answer was found before the runtime's deadline
)

// Withheld is why a container was not given a thing.
type Withheld string

const (
	ByPolicy        Withheld = "policy"        // package grant refuses it
	ByUserNamespace Withheld = "userNamespace" // it cannot work in the pod's user namespace
	ByMount         Withheld = "mount"         // it is in the way of what the pod mounts
	ByPropagation   Withheld = "propagation"   // the pod's mount would pass it on to the node
)

// Disagreement is how a container's devices differ from those of its pod's networks.
type Disagreement string

const (
	OtherDevice Disagreement = "device" // one of them is no network's
	OtherOrder  Disagreement = "order"  // they come in another order than the interfaces
)

// Plugin is the NRI plugin.
type Plugin struct {
	Options
	stage stage

	staging sync.Mutex // held from looking at the journal until what it says is staged

	mu    sync.Mutex
	ended map[string]bool // sandboxes that were removed
	known map[string]bool // sandboxes that the runtime has named since it connected; nil = it never did
	since time.Time       // when it did last
	woken chan struct{}

	warned map[string]string // what keep has told, by what that is of
}

// New makes an agent. It touches nothing yet.
func New(o Options) *Plugin {
	o.Interval = cmp.Or(o.Interval, 2*time.Second)
	if o.NetnsGone == nil {
		o.NetnsGone = link.NetnsGone
	}
	return &Plugin{
		Options: o, stage: stage{root: filepath.Clean(o.StageDir), label: o.Label},
		ended: map[string]bool{}, woken: make(chan struct{}, 1), warned: map[string]string{},
	}
}

// Run keeps the agent connected to the runtime, and the staged files as the journal has them,
// until ctx ends. A runtime that is away is no error. When Run returns, what containers have
// mounted stays.
func (a *Plugin) Run(ctx context.Context) error {
	if err := a.stage.open(); err != nil {
		return err
	}
	var keeping sync.WaitGroup
	keeping.Go(func() { a.keep(ctx) })
	defer keeping.Wait()
	_ = nri.Plugin{ // it ends with ctx
		Handler: a, Name: PluginName, Index: a.Index, Socket: a.Socket, FailRequests: a.MissingInfo == Reject, Connected: a.Connected, Log: a.Log,
	}.Serve(ctx)
	return nil
}
