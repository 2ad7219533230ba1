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

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/httpstatus"
	"devinfo-cni.io/pkg/install"
	"devinfo-cni.io/pkg/journal"
)

const (
	checkInterval = 5 * time.Second // between checks of the plugin and the settings
	lookInterval  = time.Minute     // between checks of the attachments, for /metrics
	maxSeries     = 1000            // maximum number of attachments that have their own series in /metrics
)

// run runs the agent until ctx ends.
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
	if o.metricsAddress != "" {
		stop := httpstatus.Serve(ctx, "--metrics-address", o.metricsAddress, registry, httpstatus.Health(checks...), log)
		defer stop()
	}
	release, err := agent.Alone(ctx, o.runDir, log)
	if ctx.Err() != nil {
		return nil // stopped while waiting for the lock
	}
	if err != nil {
		return fmt.Errorf("--run-dir: %w", err)
	}
	defer release()
	alone.Store(true)
	a.Run(ctx)
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
		stop := httpstatus.Serve(ctx, "--metrics-address", o.metricsAddress, prometheus.NewRegistry(), httpstatus.Health(done), log)
		defer stop()
		<-ctx.Done()
	}
	return nil
}
