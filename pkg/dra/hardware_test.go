package dra_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link/linkhost"
)

const hardware = "../../testdata/hosts/mlx5-switchdev.txtar"

// The node's devices that tests attach, by what plugins know them by.
func hardwareDevices() map[string]hostdev.Ref {
	return map[string]hostdev.Ref{
		"0000:03:00.2":   {PCI: "0000:03:00.2", IfName: "enp3s0f0v0"},
		"0000:03:00.4":   {PCI: "0000:03:00.4", IfName: "enp3s0f0v2"},
		"mlx5_core.sf.4": {Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"},
	}
}

// addDevices gives the node of the options devices, as its kernel has made them at the start.
func addDevices(o *dra.Options, dir string) *restoretest.Kernel {
	text, err := os.ReadFile(hardware)
	check(err)
	k := restoretest.Open(dir)
	if _, err := os.Stat(filepath.Join(dir, "kernel")); os.IsNotExist(err) {
		k, err = restoretest.Make(dir, text)
		check(err)
	}
	rules, err := inventory.ParseRules([]byte(ownRules))
	check(err)
	file, err := capturefile.Parse(text)
	check(err)
	links, err := linkhost.New(file)
	check(err)
	captured, err := inventory.Captured(file)
	check(err)
	o.Devices.Inventory = &devices.Inventory{
		Rules: rules, Host: func() (inventory.Host, error) { return captured, nil }, Times: inventory.Times{Settle: time.Millisecond, Poll: time.Hour},
		Events: noEvents, Others: noOthers, Waits: noChange,
	}
	o.Devices.Finder = &discovery.Finder{Sys: captured.Sys, Interfaces: links, Eswitches: links}
	o.Devices.Custody, o.Devices.Lineage = k.Host(), captured.Sys.Lineage
	return k
}

// addDevices gives the rig's node devices, for its plugins.
func (r *rig) addDevices() {
	r.kernel = addDevices(&r.options, r.dir)
	r.plugins.kernel = r.kernel
}

func netnsOf(sb *api.PodSandbox) string { return sb.Linux.Namespaces[1].Path }

// onDevice allocates to the n-th request of a claim a device of the node, which its plugin
// takes; with the driver, if one is given.
func onDevice(claim *resourceapi.ResourceClaim, n int, device, driver string) *resourceapi.ResourceClaim {
	result := &claim.Status.Allocation.Devices.Results[n]
	result.Device, result.ShareID = device, nil
	raw := &claim.Status.Allocation.Devices.Config[n].Opaque.Parameters.Raw
	more := `{"device":[{"plugin":"fake","key":"deviceID"}],`
	if driver != "" {
		more += fmt.Sprintf(`"driver":%q,`, driver)
		*raw = bytes.Replace(*raw, []byte(`"type":"fake",`), fmt.Appendf(nil, `"type":"fake","wants":%q,`, driver), 1)
	}
	*raw = append([]byte(more), (*raw)[1:]...)
	return claim
}

// useDevice is what a plugin does with its device at ADD, and the pod after that.
func (conf pluginConf) useDevice(k *restoretest.Kernel, netns, ifName string) error {
	if conf.DeviceID == "" {
		return nil
	}
	if err := k.Move(conf.DeviceID, "", netns, ifName); err != nil {
		return err
	}
	return k.Use(conf.DeviceID, 9000, "02:00:00:00:00:99")
}

// returnDevice is DEL, which brings back what it can find, as it is.
func (conf pluginConf) returnDevice(k *restoretest.Kernel, netns, ifName string) error {
	if conf.DeviceID == "" || netns == "" || k == nil {
		return nil
	}
	return k.Move(conf.DeviceID, netns, "", ifName)
}

// checkDevice wants a device to be as it was at the start, or to have the driver.
func (conf pluginConf) checkDevice(k *restoretest.Kernel) error {
	now, err := k.Host().Look(hardwareDevices()[conf.DeviceID])
	if err != nil {
		return err
	}
	now.Inode = 0
	if conf.Driver != "" && (now.Driver != conf.Driver || now.Override != conf.Driver) {
		return fmt.Errorf("driver %q, override %q: want %s", now.Driver, now.Override, conf.Driver)
	}
	if was := capturedDevices()[conf.DeviceID]; conf.Driver == "" && !cmp.Equal(was, now) {
		return fmt.Errorf("not as it was: %s", cmp.Diff(was, now))
	}
	return nil
}

// asCaptured is what the devices are like at the start.
var capturedDevices = sync.OnceValue(func() map[string]restore.Former {
	dir, err := os.MkdirTemp("", "dra-")
	check(err)
	defer os.RemoveAll(dir)
	text, err := os.ReadFile(hardware)
	check(err)
	k, err := restoretest.Make(dir, text)
	check(err)
	return readDevices(k)
})

func readDevices(k *restoretest.Kernel) map[string]restore.Former {
	all := map[string]restore.Former{}
	for id, d := range hardwareDevices() {
		f, err := k.Host().Look(d)
		if !errors.Is(err, restore.ErrAway) { // a pod has it
			check(err)
		}
		f.Inode = 0 // which each kernel chooses
		all[id] = f
	}
	return all
}

// expectRestored wants the node's devices to be what they were.
func expectRestored(t testing.TB, k *restoretest.Kernel) {
	t.Helper()
	difftest.Same(t, "devices are not what they were", readDevices(k), capturedDevices())
}
