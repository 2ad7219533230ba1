package dra_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/test/difftest"
)

const hardware = "../../testdata/hosts/mlx5-switchdev.txtar"

// hardwareDevices returns the devices of the captured host that tests attach, by device ID.
func hardwareDevices() map[string]hostdev.Ref {
	return map[string]hostdev.Ref{
		"0000:03:00.2":   {PCI: "0000:03:00.2", IfName: "enp3s0f0v0"},
		"0000:03:00.4":   {PCI: "0000:03:00.4", IfName: "enp3s0f0v2"},
		"mlx5_core.sf.4": {Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"},
	}
}

// addDevices adds the captured host's devices to the options. They are in the state of the capture, unless dir
// has a kernel already.
func addDevices(o *claim.Options, dir string) *restoretest.Kernel {
	text, err := os.ReadFile(hardware)
	check(err)
	return addDevicesOf(text, o, dir)
}

func addDevicesOf(text []byte, o *claim.Options, dir string) *restoretest.Kernel {
	k, err := restoretest.Open(dir), error(nil)
	if _, err := os.Stat(filepath.Join(dir, "kernel")); os.IsNotExist(err) {
		k, err = restoretest.Make(dir, text)
		check(err)
	}
	file, err := capturefile.Parse(text)
	check(err)
	links, err := linkhost.New(file)
	check(err)
	captured, err := inventory.Captured(file)
	check(err)
	o.Devices.Inventory = inventoryOf(captured, ownRules)
	o.Devices.Finder = &discovery.Finder{Sys: captured.Sys, Interfaces: links, Eswitches: links}
	o.Devices.Custody, o.Devices.Lineage = k.Host(), captured.Sys.Lineage
	return k
}

// addDevices adds the captured host's devices to the rig and its plugins.
func (r *rig) addDevices() {
	r.kernel = addDevices(&r.options, r.dir)
	r.plugins.kernel = r.kernel
}

// netnsOf returns the network namespace of a sandbox, or "" for the host's.
func netnsOf(sb *api.PodSandbox) string {
	for _, ns := range sb.GetLinux().GetNamespaces() {
		if ns.Type == "network" {
			return ns.Path
		}
	}
	return ""
}

// onDevice allocates a device to the n-th request of a claim. The plugin moves it into the pod. If driver is
// not "", the class requests it.
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

// useDevice moves the device into the pod, as a plugin does at ADD, and changes its settings, as the pod does later.
func (p pluginConf) useDevice(k *restoretest.Kernel, netns, ifName string) error {
	if p.DeviceID == "" {
		return nil
	}
	if err := k.Move(p.DeviceID, "", netns, ifName); err != nil {
		return err
	}
	return k.Use(p.DeviceID, 9000, "02:00:00:00:00:99")
}

// returnDevice moves the device back with its changed settings, as a plugin does at DEL.
func (p pluginConf) returnDevice(k *restoretest.Kernel, netns, ifName string) error {
	if p.DeviceID == "" || netns == "" || k == nil {
		return nil
	}
	return k.Move(p.DeviceID, netns, "", ifName)
}

// checkDevice returns an error if the device has neither its captured settings nor the configured driver.
func (p pluginConf) checkDevice(k *restoretest.Kernel) error {
	now, err := k.Host().Look(hardwareDevices()[p.DeviceID])
	if err != nil {
		return err
	}
	now.Inode = 0
	if p.Driver != "" && (now.Driver != p.Driver || now.Override != p.Driver) {
		return fmt.Errorf("driver %q, override %q: want %s", now.Driver, now.Override, p.Driver)
	}
	if was := capturedDevices()[p.DeviceID]; p.Driver == "" && !cmp.Equal(was, now) {
		return fmt.Errorf("not as it was: %s", cmp.Diff(was, now))
	}
	return nil
}

// capturedDevices returns the settings of the devices in the capture.
var capturedDevices = sync.OnceValue(func() map[string]restore.Snapshot {
	dir, err := os.MkdirTemp("", "dra-")
	check(err)
	defer os.RemoveAll(dir)
	text, err := os.ReadFile(hardware)
	check(err)
	k, err := restoretest.Make(dir, text)
	check(err)
	return readDevices(k)
})

func readDevices(k *restoretest.Kernel) map[string]restore.Snapshot {
	all := map[string]restore.Snapshot{}
	for id, d := range hardwareDevices() {
		f, err := k.Host().Look(d)
		if !errors.Is(err, restore.ErrNotOnNode) { // a pod has it
			check(err)
		}
		f.Inode = 0 // differs between kernels
		all[id] = f
	}
	return all
}

// expectRestored checks that all devices have their captured settings.
func expectRestored(t testing.TB, k *restoretest.Kernel) {
	t.Helper()
	difftest.Same(t, "devices are not what they were", readDevices(k), capturedDevices())
}
