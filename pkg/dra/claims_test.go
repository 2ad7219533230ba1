package dra_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

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

// netRequest is a request of a claim for a network of the plugin "fake".
type netRequest struct{ request, ifName, behave string }

// claimOf returns an allocated claim of a pod, whose networks use the plugin "fake".
func (r *rig) claimOf(name, uid, pod string, wants ...netRequest) *resourceapi.ResourceClaim {
	return claimIn(r.dir, name, uid, pod, wants...)
}

func claimIn(dir, name, uid, pod string, wants ...netRequest) *resourceapi.ResourceClaim {
	var all []request
	for _, w := range wants {
		late := ""
		if behave, ok := strings.CutPrefix(w.behave, "late "); ok {
			w.behave, late = behave, `"waitForAttach":false,`
		}
		all = append(all, request{name: w.request, device: "cni", share: "share-" + uid + w.request, ifName: w.ifName, parameters: late +
			network(fmt.Sprintf(`{"type":"fake","dir":%q,"behave":%q,"capabilities":{"CNIDeviceInfoFile":true}}`, dir, w.behave))})
	}
	return allocated(name, uid, pod, all...)
}

// fromTemplate makes a claim one that was made from a template for its pod.
func fromTemplate(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	pod := claim.Status.ReservedFor[0]
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}}
	return claim
}

// request is a request of a claim, with the device that the scheduler has allocated.
type request struct {
	name       string // "request/subrequest" for an alternative of firstAvailable
	device     string
	share      string // "" = the device is allocated exclusively
	count      int64
	ifName     string
	parameters string // parameters of its class, except ifName; "" = no parameters
}

// allocated returns a claim with these requests, reserved for a pod.
func allocated(name, uid, pod string, requests ...request) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)}}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	devices := &claim.Status.Allocation.Devices
	for _, r := range requests {
		base, sub, listed := strings.Cut(r.name, "/")
		asked := resourceapi.DeviceRequest{Name: base, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "c", Count: r.count}}
		if listed {
			asked.Exactly, asked.FirstAvailable = nil, []resourceapi.DeviceSubRequest{{Name: "other", DeviceClassName: "d"}, {Name: sub, DeviceClassName: "c", Count: r.count}}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, asked)
		result := resourceapi.DeviceRequestAllocationResult{Request: r.name, Driver: driverName, Pool: "node1", Device: r.device}
		if r.share != "" {
			result.ShareID = (*types.UID)(&r.share)
		}
		devices.Results = append(devices.Results, result)
		if r.parameters == "" {
			continue
		}
		raw := fmt.Appendf(nil, `{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig","ifName":%q,%s}`, r.ifName, r.parameters)
		devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClass, Requests: []string{r.name},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: driverName, Parameters: runtime.RawExtension{Raw: raw}}}})
	}
	return claim
}

// ownClaim returns a claim of one device, with these parameters of its class.
func ownClaim(uid string, device, parameters string) *resourceapi.ResourceClaim {
	return allocated("claim-"+uid, uid, "pod", request{name: "r", device: device, ifName: "net1", parameters: parameters})
}

// setIfName replaces net1 in the configuration of a claim's first request.
func setIfName(claim *resourceapi.ResourceClaim, ifName string) {
	raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = []byte(strings.ReplaceAll(string(*raw), "net1", ifName))
}

// network returns the parameter "config" with these plugins.
func network(plugins string) string {
	return `"config":{"cniVersion":"1.0.0","name":"net","plugins":[` + plugins + `]}`
}

// requestFor returns a request for a device, with a network of one plugin.
func requestFor(name, device, ifName, plugin string, count int64) request {
	r := request{name: name, device: device, ifName: ifName, parameters: network(`{"type":"` + plugin + `"}`), count: count}
	if device == pf {
		r.share = "share-" + name
	}
	return r
}

// claimFor returns a claim of the pod "pod" with these requests.
func claimFor(uid string, all ...request) *resourceapi.ResourceClaim {
	return allocated("claim-"+uid, uid, "pod", all...)
}

// makeExclusive allocates the devices of a claim exclusively.
func makeExclusive(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for n := range claim.Status.Allocation.Devices.Results {
		claim.Status.Allocation.Devices.Results[n].ShareID = nil
	}
	return claim
}

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
