// Devinfo-agent is the node agent of the devinfo plugin, for clusters with Multus. It keeps the plugin and
// its settings on the node, cleans up after stale attachments, exports metrics about attachments, and gives
// containers their device information through NRI. It runs in a DaemonSet or as a process of the host, and
// does not use the Kubernetes API.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/commandline"
)

func main() { os.Exit(commandline.RunAgent(command(), os.Stderr, os.Geteuid())) }

const about = `devinfo-agent installs the CNI plugin devinfo and its settings on this node, cleans up
after stale attachments, and gives containers their device information. It needs root, but no
access to the Kubernetes API.

Exit codes:
  0  stopped by a signal, or uninstalled
  1  cannot start, uninstall or go on
  2  the command line is invalid`

func command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "devinfo-agent", Short: "install the plugin devinfo on this node and give containers their device information", Long: about,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd.Flags()); err != nil {
				return clierr.Misuse("see devinfo-agent --help", "%w", err)
			}
			return run(cmd.Context(), &o, commandline.Logger(o.logFormat, o.verbosity))
		},
	}
	o.add(cmd.Flags())
	commandline.Finish(cmd)
	return cmd
}

const (
	checkInterval = 5 * time.Second // between checks of the plugin and the settings
	lookInterval  = time.Minute     // between checks of the attachments, for /metrics
	maxSeries     = 1000            // maximum number of attachments that have their own series in /metrics
)

func run(ctx context.Context, o *options, log *slog.Logger) error {
	log.Info("starting devinfo-agent", "version", build.Read(), "node", o.Settings.Node)
	if err := o.checkHost(); err != nil {
		return err
	}
	a, err := o.agent(log)
	if err != nil {
		return err
	}
	if o.uninstall {
		return uninstall(ctx, a, o, log)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.Register(registry, build.Read())
	var alone atomic.Bool
	checks := append([]httpstatus.Check{{Name: "lock", Ask: func() error {
		if !alone.Load() {
			return agent.ErrNotAlone
		}
		return nil
	}}}, a.Checks()...)
	defer httpstatus.Serve(ctx, o.metricsAddress, registry, log, checks...)()
	release, err := agent.Alone(ctx, o.runDir, log)
	if ctx.Err() != nil {
		return nil // stopped while waiting for the lock
	}
	if err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	defer release()
	alone.Store(true)
	if err := a.Run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// agent completes the options and returns an agent with them.
func (o *options) agent(log *slog.Logger) (*agent.Agent, error) {
	bootID, err := journal.BootID()
	if err != nil {
		return nil, fmt.Errorf("cannot read the boot ID: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot find the plugin beside this program: %w", err)
	}
	o.Plugin.From = filepath.Join(filepath.Dir(self), install.Name)
	o.BootID, o.CNIPath, o.Log = bootID, cmp.Or(o.CNIPath, o.Plugin.Dir), log
	o.CheckInterval, o.LookInterval, o.MaxSeries = checkInterval, lookInterval, maxSeries
	o.Settings.To, o.Settings.OverwriteForeign = o.NodeConfig, o.Plugin.OverwriteForeign
	o.Injection.StageDir, o.Injection.HostRoot = filepath.Join(o.runDir, "containers"), cmp.Or(o.Injection.HostRoot, o.HostRoot)
	if o.Settings.Dir == "" && !o.uninstall {
		o.Settings = nil
	}
	if !o.inject {
		o.Injection = nil
	}
	return agent.New(o.Options), nil
}

// uninstall waits up to a minute until no other agent runs, and then uninstalls. With --keep-running it serves
// /healthz until ctx ends.
func uninstall(ctx context.Context, a *agent.Agent, o *options, log *slog.Logger) error {
	const patience = time.Minute
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	release, err := agent.Alone(waiting, o.runDir, log)
	if err != nil {
		return fmt.Errorf("--uninstall: %w: delete its DaemonSet first", err)
	}
	defer release()
	if err := a.Uninstall(ctx, o.force); err != nil {
		return fmt.Errorf("--uninstall: %w", err)
	}
	if o.keepRunning {
		done := httpstatus.Check{Name: "uninstalled", Ask: func() error { return nil }}
		defer httpstatus.Serve(ctx, o.metricsAddress, prometheus.NewRegistry(), log, done)()
		<-ctx.Done()
	}
	return nil
}

// options are the values of the command-line flags. The method agent completes the embedded agent.Options.
type options struct {
	agent.Options // if Settings.Dir is "", the agent does not change node.json; Injection.HostRoot defaults to HostRoot, else /

	inject         bool
	runDir         string
	metricsAddress string
	logFormat      string
	verbosity      int
	uninstall      bool
	force          bool
	keepRunning    bool
}

const (
	hostRootHelp = "`directory` where the host's root filesystem is mounted, / outside a container; cleanups use it as the root directory of delegates. " +
		"Without it, cleanups skip attachments that have delegates; the runtime or devinfoctl gc must remove them"
	settingsHelp = "`directory` with node settings, such as a mounted ConfigMap: the agent checks <node name>.json, or default.json, and installs it as --node-config. " +
		"Without the flag, the agent does not change the node settings"
	foreignHelp = "overwrite a file named devinfo that is not a devinfo plugin, and node settings that no agent has installed"
)

func (o *options) add(f *pflag.FlagSet) {
	f.SortFlags = false
	plugin, settings, injection := &install.PluginFile{}, &install.Settings{}, &inject.Config{}
	o.Plugin, o.Settings, o.Injection = plugin, settings, injection
	f.StringVar(&settings.Node, "node-name", os.Getenv("NODE_NAME"), "`name` of this node, for --settings-dir (default $NODE_NAME)")

	f.StringVar(&plugin.Dir, "cni-bin-dir", "/opt/cni/bin", "existing `directory` of the node's CNI plugins, where the agent installs the plugin and restores it after changes")
	f.BoolVar(&plugin.OverwriteForeign, "overwrite-foreign", false, foreignHelp)
	f.StringVar(&settings.Dir, "settings-dir", "", settingsHelp)
	f.StringVar(&o.NodeConfig, "node-config", config.NodeFile, "node settings `file` of the plugin")

	f.DurationVar(&o.SweepInterval, "gc-interval", 5*time.Minute, "`time` between cleanups of state left by dead sandboxes and previous boots; 0 disables cleanup, including the one at startup")
	f.StringVar(&o.CNIPath, "cni-path", "", "colon-separated `directories` of delegate plugins on the host (default --cni-bin-dir)")
	f.StringVar(&o.HostRoot, "host-root", "", hostRootHelp)

	f.BoolVar(&o.inject, "inject", true, "give containers their device information through NRI")
	f.StringVar(&injection.HostRoot, "device-root", "", "`directory` under which the host's /dev is mounted, such as /host for /host/dev (default --host-root, else /)")
	f.StringVar(&injection.Socket, "nri-socket", "/var/run/nri/nri.sock", "NRI `socket` of the container runtime")
	f.StringVar(&injection.Index, "nri-plugin-index", "60", "two `digits`: this plugin's position among the runtime's NRI plugins")
	f.StringVar((*string)(&injection.MissingInfo), "missing-info", "allow", "allow or reject containers whose device-info files are missing; always rejected: containers without an interface that their pod requires, and, while the agent cannot read the node's state in time, those of pods that name networks")
	f.StringSliceVar(&injection.Only, "inject-namespaces", nil, "comma-separated `namespaces` or patterns such as team-* whose pods get device information (default all)")
	f.StringSliceVar(&injection.Except, "inject-exclude-namespaces", nil, "comma-separated `namespaces` or patterns whose pods get no device information")

	f.StringVar(&o.runDir, "run-dir", "/var/run/devinfo-agent", "`directory` for the agent's lock and the files mounted into containers; must have the same path on the host")
	f.StringVar(&o.metricsAddress, "metrics-address", "", "`host:port` for /healthz and /metrics, without authentication; disabled by default. /metrics contains pod names")
	f.StringVar(&o.logFormat, "log-format", "text", "format of the log on standard error: text or json")
	f.IntVarP(&o.verbosity, "v", "v", 0, "log verbosity; 4 includes debug messages")

	f.BoolVar(&o.uninstall, "uninstall", false, "remove the plugin and the node settings that an agent has installed, then exit; fails while an agent runs on the node")
	f.BoolVar(&o.force, "force", false, "with --uninstall: uninstall even if attachments exist; their pods cannot be deleted without the plugin")
	f.BoolVar(&o.keepRunning, "keep-running", false, "after --uninstall, keep running and report ready on /healthz until terminated, for use in a DaemonSet")
}

var index = regexp.MustCompile(`^[0-9]{2}$`)

// check returns all errors of the flags.
func (o *options) check(flags *pflag.FlagSet) error {
	var errs commandline.FlagErrors
	errs.If(o.Settings.Dir != "" && o.Settings.Node == "", "--settings-dir requires the node's name: set --node-name or NODE_NAME")
	errs.Value(o.Settings.Node != "" && o.Settings.Node != filepath.Base(o.Settings.Node), "node-name", o.Settings.Node, "is not a node name")
	errs.Value(!index.MatchString(o.Injection.Index), "nri-plugin-index", o.Injection.Index, "must be two digits, such as 60")
	errs.Value(o.Injection.MissingInfo != inject.Allow && o.Injection.MissingInfo != inject.Reject, "missing-info", o.Injection.MissingInfo, "must be allow or reject")
	errs.Value(o.logFormat != "text" && o.logFormat != "json", "log-format", o.logFormat, "must be text or json")
	errs.Value(o.metricsAddress != "" && !httpstatus.Valid(o.metricsAddress), "metrics-address", o.metricsAddress, "must be host:port, such as 127.0.0.1:9810 or :9810")
	for flag, patterns := range map[string][]string{"inject-namespaces": o.Injection.Only, "inject-exclude-namespaces": o.Injection.Except} {
		for _, pattern := range patterns {
			_, err := path.Match(pattern, "")
			errs.Value(err != nil || !namespaces.MatchString(pattern) || len(pattern) > 63 && !strings.Contains(pattern, "["), flag, pattern, "must be a namespace, in lower-case letters, digits and \"-\", or a pattern such as team-*")
		}
	}
	errs.If(o.force && !o.uninstall, "--force requires --uninstall: give both")
	errs.If(o.keepRunning && (!o.uninstall || o.metricsAddress == ""), "--keep-running requires --uninstall and --metrics-address: give both")
	errs.Value(o.SweepInterval < time.Second && o.SweepInterval != 0, "gc-interval", o.SweepInterval, "must be 0 or at least 1s")
	errs.Paths(flags)
	return errors.Join(errs...)
}

// namespaces matches patterns for names of namespaces, which are DNS labels (RFC 1123).
var namespaces = regexp.MustCompile(`^[a-z0-9*?\[\]^\\]([a-z0-9*?\[\]^\\-]*[a-z0-9*?\[\]^\\])?$`)

// checkHost returns an error for each host directory that does not exist. Otherwise the error would appear
// only when a delegate or device node is needed.
func (o *options) checkHost() error {
	dev := o.Injection.HostRoot
	if dev != "" {
		dev = filepath.Join(dev, "dev")
	}
	return errors.Join(
		commandline.Dir("host-root", o.HostRoot, "set it to the directory where the host's root filesystem is mounted, / outside a container"),
		commandline.Dir("device-root", dev, "set it to the directory under which the host's /dev is mounted, such as /host for /host/dev"))
}
