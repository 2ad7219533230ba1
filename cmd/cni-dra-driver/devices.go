package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// inventory is what the flag --devices has the node offer; nil = nothing.
func (o *options) inventory(sys *sysfs.FS, log *slog.Logger) (*dra.Inventory, error) {
	if o.devices == "" {
		return nil, state.WriteOffer(o.stateDir(), nil)
	}
	rules, err := rulesIn("devices", o.devices)
	if err != nil { // which devinfoctl says too, while this process is started in vain
		return nil, errors.Join(err, state.WriteOffer(o.stateDir(), &state.Offer{Rules: o.devices, Problem: err.Error()}))
	}
	socket := filepath.Join("/", o.hostRoot, o.podResources)
	locks := func() (map[string]string, error) {
		return inventory.Locks(os.DirFS(filepath.Join("/", o.hostRoot, sriovLocks)), link.NetnsGone)
	}
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		log.Warn("--pod-resources-socket: it is not there yet: devices that device plugins have given away are not known", "socket", socket)
	}
	return &dra.Inventory{
		Rules: rules, File: o.devices, Counters: o.counters, Locks: locks, Events: link.Events, Times: inventory.DefaultTimes(),
		Host: func() (inventory.Host, error) {
			if o.host != "" {
				return captured(o.host)
			}
			return inventory.Live(sys)
		},
		Others: func(ctx context.Context) (map[string]string, error) {
			given, err := givenAway(ctx, socket)
			if err != nil {
				return nil, fmt.Errorf("--pod-resources-socket: %w", err)
			}
			locked, err := locks()
			maps.Copy(given, inventory.Locked(locked))
			return given, err
		},
	}, nil
}

// sysfs is where the devices are looked up: the node's, or the captured host's.
func (o *options) sysfs(node config.Node) (*sysfs.FS, error) {
	if o.host == "" {
		return sysfs.Open(node.Sysfs)
	}
	host, err := captured(o.host)
	return host.Sys, err
}

// podResourcesLimit is what the kubelet has to answer in.
const podResourcesLimit = 10 * time.Second

// givenAway asks the kubelet for the devices that device plugins have given to pods. A
// socket that is not there tells of none.
func givenAway(ctx context.Context, socket string) (map[string]string, error) {
	if _, err := os.Stat(socket); errors.Is(err, fs.ErrNotExist) {
		return map[string]string{}, nil
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, podResourcesLimit)
	defer cancel()
	answer, err := podresources.NewPodResourcesListerClient(conn).List(ctx, &podresources.ListPodResourcesRequest{})
	if err != nil {
		return nil, err
	}
	return inventory.Allocated(answer), nil
}
