// Package inject gives the containers of a node the device information of their pod's
// network attachments, by NRI, without any change to the pod: a directory of device-info
// files, variables that name them, and the device nodes and socket directories that
// package grant allows.
package inject

import (
	"context"
	"log/slog"
	"time"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
)

// PluginName is the agent's name in NRI, without the index: it is what the runtime's list of
// required plugins and the annotation required-plugins.noderesource.dev name.
const PluginName = "devinfo-agent"

// WhenMissing is what becomes of a container whose device information should be there and
// is not.
type WhenMissing string

// The two policies.
const (
	Pass   WhenMissing = "pass"   // it is made with what there is
	Refuse WhenMissing = "refuse" // it is not made, and the kubelet tries again
)

// Options are what an Agent is made of. But for Except and Metrics all must be set; HostRoot
// may be "".
type Options struct {
	// StageDir is a directory of the agent's own for what containers mount. It is made if
	// need be. Its path is the same on the host.
	StageDir string
	// HostRoot is where the host's root is mounted, for its device nodes; "" = /.
	HostRoot string
	// Node gives the node's settings as they are now. It is asked for each container.
	Node func() (config.Node, error)
	// BootID is that of the running kernel: see journal.BootID.
	BootID string
	// Finder finds devices and interfaces.
	Finder *discovery.Finder

	WhenMissing WhenMissing
	Except      []string      // namespaces whose pods are given nothing
	Interval    time.Duration // after which the files are compared with the journal again

	Metrics Metrics
	Log     *slog.Logger
}

// Metrics are told what happens. A function that is nil is not called.
type Metrics struct {
	// Connected is told when the runtime is connected, and when it is not any more.
	Connected func(bool)
	// Answered is told of each container: what became of it, why, and how long that took.
	Answered func(Answer, Reason, time.Duration)
	// Withheld is told of each part of a device that a container was not given: refusals
	// of package grant ("policy"), and what does not work in a user namespace ("userns").
	Withheld func(why string)
	// Staged is told how many sandboxes have a directory.
	Staged func(sandboxes int)
}

// Answer is what became of a container.
type Answer string

// The answers.
const (
	Nothing  Answer = "nothing"  // the pod has no attachments
	Off      Answer = "off"      // its namespace or its annotation says so
	Injected Answer = "injected" // it was given all there is
	Passed   Answer = "passed"   // it was made although something is missing
	Refused  Answer = "refused"  // it was not made
)

// Reason is why a container was passed or refused.
type Reason string

// The reasons; "" for the answers that need none.
const (
	FileGone Reason = "file"     // a device-info file that ADD wrote is gone, or cannot be read
	Required Reason = "required" // an interface that the pod requires has no device information
	Failed   Reason = "failed"   // journal, settings, kernel or disk failed
	Late     Reason = "late"     // no answer was found before the runtime's deadline
)

// Agent is the NRI plugin.
type Agent struct{ Options }

// New makes an agent. It touches nothing yet.
func New(o Options) (*Agent, error) { return &Agent{o}, nil }

// Run keeps the agent connected to the runtime at an NRI socket, as the plugin of that
// two-digit index, and the staged files as the journal has them, until ctx ends. A runtime
// that is away is no error. When Run returns, what containers have mounted stays.
func (a *Agent) Run(ctx context.Context, socket, index string) error {
	<-ctx.Done()
	return context.Cause(ctx)
}
