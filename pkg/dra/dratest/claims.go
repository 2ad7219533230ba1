package dratest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/test/difftest"
)

// NetRequest is a request of a claim for a network of the plugin "fake".
type NetRequest struct{ request, ifName, behave string }

// Net returns a request for a network. behave says what ADD does: see process.behave. "late" before it lets containers start
// before the network is attached, and a duration is how long ADD takes without processes.
func Net(request, ifName, behave string) NetRequest { return NetRequest{request, ifName, behave} }

// ClaimOf returns an allocated claim of a pod, whose networks use the plugin "fake".
func (r *Rig) ClaimOf(name, uid, pod string, wants ...NetRequest) *resourceapi.ResourceClaim {
	return ClaimIn(r.Dir, name, uid, pod, wants...)
}

// ClaimIn is ClaimOf without a rig. dir has the calls and interfaces of the plugin.
func ClaimIn(dir, name, uid, pod string, wants ...NetRequest) *resourceapi.ResourceClaim {
	var all []Request
	for _, w := range wants {
		late := ""
		if behave, ok := strings.CutPrefix(w.behave, "late "); ok {
			w.behave, late = behave, `"waitForAttach":false,`
		}
		all = append(all, Request{Name: w.request, Device: "cni", Share: "share-" + uid + w.request, IfName: w.ifName, Parameters: late +
			Network(fmt.Sprintf(`{"type":"fake","dir":%q,"behave":%q,"capabilities":{"CNIDeviceInfoFile":true}}`, dir, w.behave))})
	}
	return Allocated(name, uid, pod, all...)
}

// FromTemplate makes a claim one that was made from a template for its pod.
func FromTemplate(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	pod := claim.Status.ReservedFor[0]
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}}
	return claim
}

// OnNetwork gives the network of a claim's first request another name.
func OnNetwork(name string, claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = bytes.Replace(*raw, []byte(`"name":"net"`), fmt.Appendf(nil, `"name":%q`, name), 1)
	return claim
}

// Request is a request of a claim, with the device that the scheduler has allocated.
type Request struct {
	Name       string // "request/subrequest" for an alternative of firstAvailable
	Device     string
	Share      string // "" = the device is allocated exclusively
	Count      int64
	IfName     string
	Parameters string // parameters of its class, except ifName; "" = no parameters
}

// Allocated returns a claim with these requests, reserved for a pod.
func Allocated(name, uid, pod string, requests ...Request) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)}}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	devices := &claim.Status.Allocation.Devices
	for _, r := range requests {
		base, sub, listed := strings.Cut(r.Name, "/")
		asked := resourceapi.DeviceRequest{Name: base, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "c", Count: r.Count}}
		if listed {
			asked.Exactly, asked.FirstAvailable = nil, []resourceapi.DeviceSubRequest{{Name: "other", DeviceClassName: "d"}, {Name: sub, DeviceClassName: "c", Count: r.Count}}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, asked)
		result := resourceapi.DeviceRequestAllocationResult{Request: r.Name, Driver: Driver, Pool: "node1", Device: r.Device}
		if r.Share != "" {
			result.ShareID = (*types.UID)(&r.Share)
		}
		devices.Results = append(devices.Results, result)
		if r.Parameters == "" {
			continue
		}
		raw := fmt.Appendf(nil, `{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig","ifName":%q,%s}`, r.IfName, r.Parameters)
		devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClass, Requests: []string{r.Name},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: Driver, Parameters: runtime.RawExtension{Raw: raw}}}})
	}
	return claim
}

// DeviceClaim returns a claim of one device, with these parameters of its class.
func DeviceClaim(uid string, device, parameters string) *resourceapi.ResourceClaim {
	return Allocated("claim-"+uid, uid, "pod", Request{Name: "r", Device: device, IfName: "net1", Parameters: parameters})
}

// WithDeviceNodes adds a request for the device nodes of VF3 to a claim.
func WithDeviceNodes(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	bare := DeviceClaim("", VF3, "")
	claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, bare.Spec.Devices.Requests...)
	results := &claim.Status.Allocation.Devices.Results
	*results = append(*results, bare.Status.Allocation.Devices.Results...)
	return claim
}

// SetIfName replaces net1 in the configuration of a claim's first request.
func SetIfName(claim *resourceapi.ResourceClaim, ifName string) {
	raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = []byte(strings.ReplaceAll(string(*raw), "net1", ifName))
}

// Network returns the parameter "config" with these plugins.
func Network(plugins string) string {
	return `"config":{"cniVersion":"1.0.0","name":"net","plugins":[` + plugins + `]}`
}

// RequestFor returns a request for a device, with a network of one plugin.
func RequestFor(name, device, ifName, plugin string) Request {
	r := Request{Name: name, Device: device, IfName: ifName, Parameters: Network(`{"type":"` + plugin + `"}`)}
	if device == PF {
		r.Share = "share-" + name
	}
	return r
}

// ClaimFor returns a claim of the pod "pod" with these requests.
func ClaimFor(uid string, all ...Request) *resourceapi.ResourceClaim {
	return Allocated("claim-"+uid, uid, "pod", all...)
}

// OnDevice allocates a device to the n-th request of a claim. The plugin moves it into the pod. If driver is
// not "", the class requests it.
func OnDevice(claim *resourceapi.ResourceClaim, n int, device, driver string) *resourceapi.ResourceClaim {
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

// hardware returns the capture of the host with these devices.
func hardware() []byte {
	text, err := os.ReadFile(capturetest.Paths("mlx5-switchdev")[0])
	Check(err)
	return text
}

// HardwareDevices returns the devices of the captured host that tests attach, by device ID.
func HardwareDevices() map[string]hostdev.Ref {
	return map[string]hostdev.Ref{
		"0000:03:00.2":   {PCI: "0000:03:00.2", IfName: "enp3s0f0v0"},
		"0000:03:00.4":   {PCI: "0000:03:00.4", IfName: "enp3s0f0v2"},
		"mlx5_core.sf.4": {Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"},
	}
}

// AddDevices adds the captured host's devices to the options. They are in the state of the capture, unless dir
// has a kernel already.
func AddDevices(o *claim.Options, dir string) *restoretest.Kernel {
	return AddDevicesOf(hardware(), o, dir)
}

// AddDevicesOf is AddDevices for another host, whose capture is text.
func AddDevicesOf(text []byte, o *claim.Options, dir string) *restoretest.Kernel {
	k, err := restoretest.Open(dir), error(nil)
	if _, err := os.Stat(filepath.Join(dir, "kernel")); os.IsNotExist(err) {
		k, err = restoretest.Make(dir, text)
		Check(err)
	}
	file, err := capturefile.Parse(text)
	Check(err)
	links, err := linkhost.New(file)
	Check(err)
	captured, err := inventory.Captured(file)
	Check(err)
	o.Devices.Inventory = InventoryOf(captured, Rules)
	o.Devices.Finder = &discovery.Finder{Sys: captured.Sys, Interfaces: links, Eswitches: links}
	o.Devices.Custody, o.Devices.Lineage = k.Host(), captured.Sys.Lineage
	return k
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
	now, err := k.Host().Look(HardwareDevices()[p.DeviceID])
	if err != nil {
		return err
	}
	now.Inode = 0
	if p.Driver != "" && (now.Driver != p.Driver || now.Override != p.Driver) {
		return fmt.Errorf("driver %q, override %q: want %s", now.Driver, now.Override, p.Driver)
	}
	if was := CapturedDevices()[p.DeviceID]; p.Driver == "" && !cmp.Equal(was, now) {
		return fmt.Errorf("not as it was: %s", cmp.Diff(was, now))
	}
	if p.Driver != "" {
		return nil
	}
	return k.Host().Alone(now)
}

// CapturedDevices returns the settings of the devices in the capture.
var CapturedDevices = sync.OnceValue(func() map[string]restore.Snapshot {
	dir, err := os.MkdirTemp("", "dra-")
	Check(err)
	defer os.RemoveAll(dir)
	k, err := restoretest.Make(dir, hardware())
	Check(err)
	return ReadDevices(k)
})

// ReadDevices returns the current settings of the devices.
func ReadDevices(k *restoretest.Kernel) map[string]restore.Snapshot {
	all := map[string]restore.Snapshot{}
	for id, d := range HardwareDevices() {
		f, err := k.Host().Look(d)
		if !errors.Is(err, restore.ErrNotOnNode) { // a pod has it
			Check(err)
		}
		f.Inode = 0 // differs between kernels
		all[id] = f
	}
	return all
}

// ExpectRestored checks that all devices have their captured settings.
func ExpectRestored(t testing.TB, k *restoretest.Kernel) {
	t.Helper()
	difftest.Same(t, "devices are not what they were", ReadDevices(k), CapturedDevices())
}
