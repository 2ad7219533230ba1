package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Options configure an Agent.
type Options struct {
	Plugin     *install.PluginFile // New sets its field Newer
	Settings   *install.Settings   // nil = do not change the node's settings
	NodeConfig string              // the settings file that the plugin reads
	BootID     string              // ID of the running kernel: see journal.BootID

	// Injection configures the injection into containers; nil disables it. The agent sets Node, BootID,
	// Finder, Connected, Metrics and Log.
	Injection *inject.Config

	CNIPath  string // colon-separated directories of delegate plugins
	HostRoot string // root directory of delegates; "" = cleanups do not run delegates

	CheckInterval time.Duration // between checks of the plugin and the settings
	SweepInterval time.Duration // between cleanups; 0 = never
	LookInterval  time.Duration // between checks of the attachments
	MaxSeries     int           // maximum number of attachments that have their own series in the metrics

	Log *slog.Logger
}

// Names of the components in /healthz and the metrics.
const (
	Settings    = "settings"     // the node's settings are installed and valid, and deviceInfoDir exists
	SettingsDir = "settings-dir" // the settings directory is empty, or one of its files applies to this node
	Plugin      = "plugin"       // the plugin is installed, and the agent can reach the journal
	Label       = "label"        // the plugin and settings have the SELinux labels of their directories
	GC          = "gc"           // the last cleanup succeeded
	Attachments = "attachments"  // the last check of the attachments succeeded
	NRI         = "nri"          // the container runtime is connected
)

// Agent is the agent of one node.
type Agent struct {
	Options
	metrics  metrics
	plugin   atomic.Pointer[install.Executable] // the installed plugin; nil = none
	left     atomic.Int64                       // number of stale attachments whose delegates the last sweep could not run
	summary  atomic.Pointer[summary]            // result of the last check of the attachments; nil before the first check
	injector *inject.Plugin                     // nil = containers get nothing

	mu       sync.Mutex
	troubles map[string]error // by component; nil = healthy
}

// New returns an agent with the given options. It has no side effects on the node.
func New(o Options) *Agent {
	a := &Agent{Options: o, metrics: newMetrics(), troubles: map[string]error{}}
	for component, enabled := range map[string]bool{
		Attachments: true, Label: true, Plugin: true, Settings: true, SettingsDir: o.Settings != nil, GC: o.SweepInterval > 0, NRI: o.Injection != nil,
	} {
		if enabled {
			a.troubles[component] = errors.New("has not started yet")
		}
	}
	a.Plugin.Newer = a.newer
	if o.Injection != nil {
		c := *o.Injection
		c.Node, c.BootID, c.Metrics, c.Log = a.Node, a.BootID, a.metrics, a.Log
		a.injector = inject.New(c)
	}
	return a
}

// Checks returns the checks of /healthz. Only the components plugin and settings affect readiness. A failure of
// another component, such as a runtime without NRI, must not stop a rollout. Invalid settings must stop it,
// because new nodes would use the defaults.
func (a *Agent) Checks() (checks []httpstatus.Check) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, component := range slices.Sorted(maps.Keys(a.troubles)) {
		checks = append(checks, httpstatus.Check{Name: component, Optional: component != Plugin && component != Settings, Ask: func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.troubles[component]
		}})
	}
	return checks
}

// report sets the health of a component and logs changes.
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

// Run runs the components until ctx ends and their work in progress is done. Kubernetes kills the container, and a delegate's
// DEL with it, after 30 s; the next agent's sweep repeats it. The error is that of [Agent.removed], with which Run ends.
func (a *Agent) Run(ctx context.Context) (gone error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var components sync.WaitGroup
	component := func(pause time.Duration, f func(context.Context)) {
		components.Go(func() {
			for ctx.Err() == nil {
				f(ctx)
				sleep(ctx, pause)
			}
		})
	}
	a.keep(ctx) // first, because the components use the settings
	component(a.CheckInterval, func(ctx context.Context) {
		if gone = a.removed(); gone != nil {
			end()
			return
		}
		a.keep(ctx)
	})
	component(a.LookInterval, a.look)
	if a.SweepInterval > 0 {
		component(a.SweepInterval, a.sweep)
	}
	if a.injector != nil {
		component(a.CheckInterval, func(ctx context.Context) {
			if err := a.inject(ctx); err != nil && ctx.Err() == nil {
				a.report(NRI, err) // the plugin did not start
			}
		})
	}
	components.Wait()
	return gone
}

// removed is [store.Removed] for the directories of the node.
func (a *Agent) removed() error {
	node, _ := a.Node() // if it cannot be read, it has the defaults
	dirs := []string{a.Plugin.Dir, filepath.Dir(a.NodeConfig), link.NetnsDir, node.StateDir, node.DeviceInfoDir, node.CDIDir}
	if a.Injection != nil {
		dirs = append(dirs, a.Injection.StageDir, filepath.Dir(a.Injection.Socket))
		dirs = append(dirs, node.SocketDirs...)
	}
	return store.Removed(dirs...)
}

// inject runs the NRI plugin until ctx ends or a requirement, such as the node's settings, is missing.
func (a *Agent) inject(ctx context.Context) error {
	_, checker, err := a.checker()
	if err != nil {
		return err
	}
	a.injector.Finder = checker.Finder
	a.injector.Connected = func(away error) {
		if ctx.Err() == nil {
			a.report(NRI, away)
		}
	}
	return a.injector.Run(ctx)
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// pace spreads long work to limit the load on the node: after at least 20 ms of work, rest pauses three
// times as long as it worked, but at most 100 ms.
type pace struct{ began time.Time }

func (p *pace) rest(ctx context.Context) {
	worked := time.Since(p.began)
	if worked < 20*time.Millisecond {
		return
	}
	sleep(ctx, min(3*worked, 100*time.Millisecond))
	p.began = time.Now()
}

// Node returns the current settings of the node. If none are installed, for example after an uninstallation, it
// returns the settings that the agent would install. If the agent refuses these, and the plugin is installed, it
// returns the defaults, which the plugin uses.
func (a *Agent) Node() (config.Node, error) {
	if _, err := os.Stat(a.NodeConfig); a.Options.Settings != nil && errors.Is(err, fs.ErrNotExist) {
		if node, err := a.Options.Settings.Wanted(); err == nil || !a.Plugin.IsThere() {
			return node, err
		}
	}
	return config.LoadNode(a.NodeConfig)
}

// journal returns the journal, whose directory it creates if create is set.
func (a *Agent) journal(create bool) (*journal.Journal, error) {
	node, err := a.Node()
	j := journal.Open(node.StateDir, a.BootID)
	if err == nil && create {
		err = j.EnsureDir()
	}
	return j, err
}

// newer returns the pods that have journal entries in a newer format than the given one.
func (a *Agent) newer(than int) ([]string, error) {
	j, err := a.journal(true)
	if err != nil {
		return nil, err
	}
	return j.Newer(than)
}

// checker returns the node's current settings and a checker that uses them.
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
		Dir:    store.Open, Journal: journal.Open(node.StateDir, a.BootID),
	}, nil
}

// ErrNotAlone is the error of an agent on a node where another agent runs. Use errors.Is to match it.
var ErrNotAlone = errors.New("another devinfo-agent runs on this node")

// Alone waits until no other agent runs on the node and takes a lock in dir, which it creates if missing. Later agents
// wait until release is called or the process ends. Two agents at once, as in a rolling update, would overwrite the
// plugin in turn, and containers would fail because both NRI plugins have the same name.
func Alone(ctx context.Context, dir string, log *slog.Logger) (release func(), err error) {
	err = os.MkdirAll(dir, 0o755) // #nosec G301 -- pods in user namespaces must pass it
	if err != nil {
		return nil, err
	}
	path, busy := filepath.Join(dir, "lock"), new(store.BusyError)
	lock, err := store.LockFile(ctx, path, 0)
	if errors.As(err, &busy) {
		log.Info("waiting for the lock", "error", ErrNotAlone, "lock", path)
		lock, err = store.LockFile(ctx, path, math.MaxInt64)
	}
	if errors.As(err, &busy) {
		err = fmt.Errorf("%w: it holds the lock %s", ErrNotAlone, path)
	}
	return func() { store.Unlock(lock) }, err
}

// keep checks and restores the settings and the plugin once.
func (a *Agent) keep(ctx context.Context) {
	var unlabelled, err error // unlabelled: of setting the SELinux label of the settings
	if a.Settings != nil {
		var done install.Arrangement
		if done, err = a.Options.Settings.Keep(); err == nil && done.State != "" && done.State != install.AlreadyThere {
			a.Log.Info("node settings changed", "state", done.State, "path", a.Options.Settings.To, "from", done.From)
		}
		a.report(SettingsDir, done.Ignored)
		unlabelled = done.Warning
	}
	node, broken := a.Node() // check settings of any origin, because broken ones make every ADD fail
	var blind error
	if broken == nil {
		// Multus creates a missing deviceInfoDir with mode 000, which takes CAP_DAC_OVERRIDE to read.
		if err := store.Open(node.DeviceInfoDir).Make(); err != nil {
			broken = fmt.Errorf("deviceInfoDir: %w", err)
		}
		blind = journal.Open(node.StateDir, a.BootID).EnsureDir()
	}
	a.report(Settings, errors.Join(err, broken))

	done, err := a.Options.Plugin.Keep(ctx)
	if ctx.Err() != nil {
		return // Keep may have been interrupted
	}
	a.note(done, err)
	if err == nil {
		a.report(Label, errors.Join(done.Warning, unlabelled))
		err = blind // the agent must read the journal to update or uninstall the plugin
	}
	a.report(Plugin, err)
}

// note records the installed plugin, and logs and counts an installation.
func (a *Agent) note(done *install.Installation, err error) {
	now := done.Old // nil = none is installed
	if err == nil && done.State != install.AlreadyThere {
		now = &done.New
		a.metrics.installs.WithLabelValues(done.State).Inc()
		log := a.Log.With("state", done.State, "path", done.Path, "version", done.New.Version)
		if done.Old != nil {
			log = log.With("before", done.Old.Version)
		}
		log.Info("plugin changed")
	}
	a.plugin.Store(now)
}
