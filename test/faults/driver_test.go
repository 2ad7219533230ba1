package faults_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/link"
	hostsettings "devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/node"
)

// offers are the rules of the driver.
const offers = "devices:\n- {select: 'device.attributes[\"devinfo-cni.io\"].kind == \"vf\"', sharing: exclusive}\n"

// driverOptions are the options of a driver on the node, without kubelet, runtime and API server.
func driverOptions() (o claim.Options, err error) {
	boot, err := journal.BootID()
	sys, sysErr := sysfs.Open(node.Sys)
	settings, settingsErr := config.LoadNode(node.Settings)
	if err = cmp.Or(err, sysErr, settingsErr); err != nil {
		return o, err
	}
	kernel := link.NewKernel(sys.Files())
	o = dratest.Options(driverDir)
	o.BootID, o.StateDir, o.CDIDir, o.Log = boot, claimDir, cdiDir, slog.New(slog.NewTextHandler(os.Stderr, nil))
	of := dratest.InventoryOf(inventory.Host{}, offers)
	conditions := &hostsettings.Memory{Proc: "/proc"}
	of.Host = func() (inventory.Host, error) { return inventory.Live(sys, conditions) }
	of.Others = func(context.Context) (map[string]string, error) {
		return journal.LockedBySRIOV(os.DirFS(sriovDir), link.NetnsGone)
	}
	j := journal.Open(stateDir, boot)
	j.SRIOVLocks = sriovDir
	o.Devices = devices.Options{
		Inventory: of, Journal: j, Lineage: sys.Lineage, DevicePluginDir: o.Devices.DevicePluginDir, Advertised: o.Devices.Advertised,
		Custody:     restore.New(sys, sysfs.Writer(node.Sys), hostsettings.Kernel{Kernel: kernel, Proc: "/proc"}),
		Finder:      &discovery.Finder{Sys: sys, Interfaces: kernel, Eswitches: kernel},
		DeviceNodes: grant.NodesBelow(""), Settings: func() (config.Node, error) { return settings, nil },
	}
	return o, nil
}

const kubeletWaits = 45 * time.Second

// driverPublish prints the devices that the driver would publish.
func driverPublish() error {
	return withDriver(func(a *dra.Agent) error {
		slices, ok := a.Node.Slices(context.Background())
		return print(map[string]any{"slices": slices, "ok": ok, "withheld": a.Node.Withheld(), "others": fmt.Sprint(a.Node.OthersKnown())})
	})
}

// driverPrepare prepares a claim of a device, and prints the answer to the kubelet.
func driverPrepare() error {
	return withDriver(func(a *dra.Agent) error {
		c := dratest.DeviceClaim("uid-new", "pci-0000-01-10-6", dratest.Network(`{"type":"sriov"}`))
		ctx, cancel := context.WithTimeout(context.Background(), kubeletWaits)
		defer cancel()
		answer, err := a.Prepare(ctx, c, 0)
		if err != nil {
			return err
		}
		return print(answer)
	})
}

func withDriver(f func(*dra.Agent) error) error {
	o, err := driverOptions()
	if err != nil {
		return err
	}
	a, err := claim.New(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { a.Run(ctx) })
	err = f(a)
	cancel()
	running.Wait()
	return errors.Join(err, a.Close())
}

func print(v any) error {
	text, err := json.MarshalIndent(v, "", " ")
	fmt.Printf("%s\n", text)
	return err
}
