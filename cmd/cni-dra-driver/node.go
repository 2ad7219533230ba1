package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/event"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

// inventory returns what --devices selects, or nil without the flag, and records the offer for devinfoctl.
func (o *options) inventory(sys *sysfs.FS) (*devices.Inventory, error) {
	if o.devices == "" {
		return nil, state.WriteOffer(o.stateDir(), nil)
	}
	rules, err := rulesIn("devices", o.devices)
	if err != nil { // devinfoctl shows this error while the driver restarts again and again
		return nil, errors.Join(err, state.WriteOffer(o.stateDir(), &state.Offer{Rules: o.devices, Problem: err.Error()}))
	}
	socket := o.podResourcesSocket()
	if _, err := os.Stat(socket); err != nil && o.podResourcesGiven {
		return nil, fmt.Errorf("--pod-resources-socket: %w: give the path of the kubelet's socket, as the host sees it, or leave the flag out", err)
	}
	memory := podresources.Memory{Socket: socket, Driver: driver}
	conditions := &settings.Memory{Proc: "/proc"}
	return &devices.Inventory{
		Rules: rules, File: o.devices, Events: event.Listen, Settle: time.Second, Poll: time.Minute,
		EvictLost: o.evictLost, CarrierGrace: o.carrierGrace,
		Host: func() (inventory.Host, error) {
			if o.captureFile != "" {
				return captured(o.captureFile)
			}
			return inventory.Live(sys, conditions)
		},
		Waits: memory.Waits,
		Others: func(ctx context.Context) (map[string]string, error) {
			all, failed := journal.LockedBySRIOV(os.DirFS(filepath.Join("/", o.hostRoot, journal.SRIOVLocks)), link.NetnsGone)
			given, err := memory.Ask(ctx)
			if err != nil {
				err = fmt.Errorf("--pod-resources-socket: %s: cannot list the devices of pods: %w", socket, err)
			}
			maps.Copy(all, given)
			return all, errors.Join(err, failed)
		},
	}, nil
}

// podResourcesSocket is the path of the kubelet's socket for this process.
func (o *options) podResourcesSocket() string { return filepath.Join("/", o.hostRoot, o.podResources) }

// sysfs returns the /sys of the node, or of the capture file.
func (o *options) sysfs(node config.Node) (*sysfs.FS, error) {
	if o.captureFile == "" {
		return sysfs.Open(node.Sysfs)
	}
	host, err := captured(o.captureFile)
	return host.Sys, err
}

// gateName is the program that the runtime runs for each container of a claim. It is installed beside the CNI
// plugins, because the host allows programs to run from there.
const gateName = "cni-dra-gate"

// keepGate installs the gate program if it differs. The runtime creates no container of a claim without it.
func (o *options) keepGate(log *slog.Logger) error {
	warning, err := install.Program(o.gate, filepath.Join("/", o.hostRoot, o.cniBinDir, gateName))
	if err != nil {
		return fmt.Errorf("%s: %w", gateName, err)
	}
	if warning != nil {
		log.Warn("the runtime may not be allowed to run the gate program", "program", gateName, "error", warning)
	}
	return nil
}
