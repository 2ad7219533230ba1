// Package agent is the node agent of the devinfo plugin: it keeps the plugin and its
// settings on the node (package install), removes what dead sandboxes and older boots have
// left, gives containers their device information (package inject), and looks at the
// attachments for Prometheus. Each component goes on when another fails, and says what is wrong
// with it: in the log when that changes, in /healthz and in the metrics. It asks nothing of an
// API server.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/clierr"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/httpstatus"
	"devinfo-cni.io/pkg/inject"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Options configure an Agent.
type Options struct {
	Plugin     *install.Plugin   // the agent says Newer
	Settings   *install.Settings // nil = the node's settings are left alone
	NodeConfig string            // where the plugin looks for its settings
	BootID     string            // of the running kernel: see journal.BootID

	// Injection is without Node, BootID, Finder, Metrics and Log, which are the agent's; nil =
	// containers are given nothing.
	Injection *inject.Options

	CNIPath  string // directories of delegates, separated by colons
	HostRoot string // the root directory of delegates; "" = their DEL cannot be run

	CheckInterval time.Duration // between two looks at plugin and settings
	SweepInterval time.Duration // 0 = nothing is swept
	LookInterval  time.Duration // between two looks at the attachments
	MaxSeries     int           // how many attachments the metrics name

	Log *slog.Logger
}

// The components of an agent, as /healthz and the metrics call them.
const (
	Settings    = "settings"    // the node's settings are in place, and make sense; deviceInfoDir is there
	Plugin      = "plugin"      // the plugin is in place, and the journal in sight
	Label       = "label"       // plugin and settings have their directories' SELinux labels
	GC          = "gc"          // what was left could be removed
	Attachments = "attachments" // the attachments could be looked at
	NRI         = "nri"         // the container runtime is connected
)

// Agent is the agent of one node.
type Agent struct {
	Options
	metrics   metrics
	plugin    atomic.Pointer[install.Executable] // what is on the node; nil = none
	left      atomic.Int64                       // stale attachments, by the last sweep, whose delegates cannot be run
	summary   atomic.Pointer[summary]            // the last one; nil = none yet
	sandboxes atomic.Pointer[inject.Plugin]      // knows the runtime's; nil = nothing was injected yet

	mu       sync.Mutex
	troubles map[string]error // of the components; nil = healthy
}

// New makes an agent. It touches nothing yet.
func New(o Options) *Agent {
	a := &Agent{Options: o, metrics: newMetrics(), troubles: map[string]error{}}
	for _, component := range a.Components() {
		a.troubles[component] = errNotYet
	}
	a.Plugin.Newer = a.newer
	return a
}

var errNotYet = errors.New("has not started yet")

// Components are those that the agent has, sorted.
func (a *Agent) Components() []string {
	components := []string{Attachments, Label, Plugin, Settings}
	if a.SweepInterval > 0 {
		components = append(components, GC)
	}
	if a.Injection != nil {
		components = append(components, NRI)
	}
	slices.Sort(components)
	return components
}

// Checks returns the checks of /healthz. A node is ready if plugin and settings are in place. The
// failure of another component, such as a runtime without NRI, would otherwise hold up every rollout.
// Refused settings are meant to hold one up: until they are corrected new nodes have the defaults.
func (a *Agent) Checks() (checks []httpstatus.Check) {
	for _, component := range a.Components() {
		checks = append(checks, httpstatus.Check{Name: component, Optional: component != Plugin && component != Settings, Ask: func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.troubles[component]
		}})
	}
	return checks
}

// report notes how a part is; the log is told of changes.
func (a *Agent) report(component string, err error) {
	if help := clierr.Rights(err, os.Geteuid()); help != "" {
		err = fmt.Errorf("%w: %s", err, help)
	}
	a.mu.Lock()
	before := a.troubles[component]
	a.troubles[component] = err
	a.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		a.Log.Error("component unhealthy", "component", component, "error", err)
	case err == nil && before != nil:
		a.Log.Info("component healthy", "component", component)
	}
}

// For what runs when the agent is to end. A delegate's DEL would die with our container, which
// Kubernetes gives 30 s; one that takes longer the next sweep runs again.
const (
	grace      = 500 * time.Millisecond
	sweepGrace = 25 * time.Second
)

// Run keeps, sweeps, looks and injects until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	var components, sweeps sync.WaitGroup
	settled := make(chan struct{}) // all others go by the settings
	component := func(of *sync.WaitGroup, pause time.Duration, f func(context.Context)) {
		of.Go(func() {
			select {
			case <-settled:
			case <-ctx.Done():
			}
			for ctx.Err() == nil {
				f(ctx)
				sleep(ctx, pause)
			}
		})
	}
	components.Go(func() {
		a.keep(ctx)
		close(settled)
	})
	component(&components, a.CheckInterval, a.keep)
	component(&components, a.LookInterval, a.look)
	if a.SweepInterval > 0 {
		component(&sweeps, a.SweepInterval, a.sweep)
	}
	if a.Injection != nil {
		component(&components, a.CheckInterval, func(ctx context.Context) {
			if err := a.inject(ctx); err != nil && ctx.Err() == nil {
				a.report(NRI, err) // it could not begin
			}
		})
	}
	<-ctx.Done()
	limit := grace
	if a.HostRoot != "" {
		limit = sweepGrace
	}
	swept := within(limit, &sweeps)
	if !within(grace, &components) || !swept {
		a.Log.Warn("stopping with work in progress; the next agent will redo it")
	}
}

// inject runs the injection until ctx ends, or what it needs is not there.
func (a *Agent) inject(ctx context.Context) error {
	_, checker, err := a.checker()
	if err != nil {
		return err
	}
	o := *a.Injection
	o.Node, o.BootID, o.Finder, o.Metrics, o.Log = a.Node, a.BootID, checker.Finder, a.metrics, a.Log
	o.Connected = func(on bool) {
		var err error
		if !on {
			err = fmt.Errorf("not connected to %s: check that the container runtime runs with NRI enabled", a.Injection.Socket)
		}
		if ctx.Err() == nil {
			a.report(NRI, err)
		}
	}
	i := inject.New(o)
	a.sandboxes.Store(i)
	return i.Run(ctx)
}

// within waits for a group, and says whether it has ended.
func within(limit time.Duration, group *sync.WaitGroup) bool {
	ended := make(chan struct{})
	go func() {
		group.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return true
	case <-time.After(limit):
		return false
	}
}

// sleep waits, but not longer than ctx.
func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// A pace spreads long work: what has taken 20 ms rests for three times as long, but
// at most 100 ms.
type pace struct{ began time.Time }

func (p *pace) rest(ctx context.Context) {
	worked := time.Since(p.began)
	if worked < 20*time.Millisecond {
		return
	}
	sleep(ctx, min(3*worked, 100*time.Millisecond))
	p.began = time.Now()
}

// Node returns the current settings of the node. While none are installed, such as after an uninstallation, it
// returns the settings that the agent would install.
func (a *Agent) Node() (config.Node, error) {
	if _, err := os.Stat(a.NodeConfig); a.Options.Settings != nil && errors.Is(err, fs.ErrNotExist) {
		return a.Options.Settings.Wanted()
	}
	return config.LoadNode(a.NodeConfig)
}

// journal opens the journal where the node's settings say that it is.
func (a *Agent) journal() (*journal.Journal, error) {
	node, err := a.Node()
	return journal.Open(node.StateDir, a.BootID), err
}

func (a *Agent) newer(than int) ([]string, error) {
	j, err := a.journal()
	if err == nil {
		err = j.EnsureDir()
	}
	if err != nil {
		return nil, err
	}
	return j.Newer(than)
}

// checker looks at the node, with the settings as they are now.
func (a *Agent) checker() (config.Node, *check.Checker, error) {
	node, err := a.Node()
	if err != nil {
		return node, nil, err
	}
	sys, err := sysfs.Open(node.Sysfs)
	if err != nil {
		return node, nil, err
	}
	kernel := link.NewKernel(sys.Files())
	return node, &check.Checker{
		Finder: &discovery.Finder{Sys: sys, Interfaces: kernel, Eswitches: kernel},
		Dir:    func(path string) *store.Dir { return store.Open(path) }, NetnsGone: link.NetnsGone, BootID: a.BootID,
	}, nil
}
