// Devinfo-agent is the node agent of the devinfo plugin, for clusters with Multus. It keeps the plugin and
// its settings on the node, cleans up after stale attachments, exports metrics about attachments, and gives
// containers their device information through NRI. It runs in a DaemonSet or as a process of the host, and
// does not use the Kubernetes API.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/clierr"
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
