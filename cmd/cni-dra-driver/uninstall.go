package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"

	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/dra"
)

// errUnused ends a driver that is to be uninstalled.
var errUnused = errors.New("no claim is on record")

// uninstall removes the driver's files from the node. With --keep-running it first serves the claims on record,
// because the kubelet needs the driver to delete their pods.
func uninstall(ctx context.Context, o *options, client kubernetes.Interface, log *slog.Logger) error {
	i, err := o.installation(client, log)
	if err != nil {
		return err
	}
	err = i.Uninstall(ctx, o.force)
	if errors.As(err, new(*dra.InUseError)) && o.keepRunning {
		log.Warn("not uninstalled yet", "error", err)
		if err = serve(ctx, o, client, log); errors.Is(err, errUnused) {
			err = i.Uninstall(ctx, false)
		}
	}
	if err != nil {
		return fmt.Errorf("--uninstall: %w", err)
	}
	if ctx.Err() != nil {
		return nil
	}
	log.Info("uninstalled")
	if o.keepRunning {
		done := httpstatus.Check{Name: "uninstalled", Ask: func() error { return nil }}
		defer httpstatus.Serve(ctx, "--metrics-address", o.metricsAddress, prometheus.NewRegistry(), httpstatus.Health(done), log)()
		<-ctx.Done()
	}
	return nil
}

func (o *options) installation(client kubernetes.Interface, log *slog.Logger) (i dra.Installation, err error) {
	node, bootID, err := o.node()
	bin := filepath.Join("/", o.hostRoot, o.cniBinDir)
	return dra.Installation{
		Driver: driver, Node: o.nodeName, Client: client,
		PluginDir: o.pluginDir(), RegistrarDir: o.registrarDir, Dirs: o.dirs(node),
		Gate: filepath.Join(bin, gateName), Plugin: &install.Plugin{Dir: bin},
		Journal: o.journal(node, bootID), Log: log,
	}, err
}

// awaitUnused returns once no claim has been on record for o.linger.
func (o *options) awaitUnused(ctx context.Context, agent *dra.Agent) {
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < o.linger; {
		select {
		case <-time.After(o.linger / 10):
		case <-ctx.Done():
		}
		if agent.InUse() != nil {
			began = time.Now()
		}
	}
}
