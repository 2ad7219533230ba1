// Package metadata tells what became of a network: the pod, by device attributes and
// network data in its metadata file (KEP-5304), and the API server, by the status of
// an allocated device (resource.k8s.io/v1, AllocatedDeviceStatus).
//
// Of the host it reads only what sysfs says of a PCI function. The API refuses a whole object
// for one field that is over a limit, so such a field is left out, with a warning.
package metadata

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"devinfo-cni.io/pkg/cluster"
)

// Device is an allocated device of ours.
type Device struct {
	Driver, Pool, Name string
	ShareID            *types.UID  // of the allocation; nil = it has none
	Since              metav1.Time // of the last change of its condition
	Shown              cluster.Device
}

// Attached is the status of a device after ADD, with the condition that the Device Configuration
// API has. [Data] warns of what is left out.
func (d Device) Attached(result json.RawMessage, network *resourceapi.NetworkDeviceData) resourceapi.AllocatedDeviceStatus {
	s := d.status(result, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: "NetworkInterfaceReady", Message: "CNI-DRA-Driver has configured the device.",
	})
	s.NetworkData = network
	return s
}

// Bare is the status of a device that the driver attaches to no network.
func (d Device) Bare() resourceapi.AllocatedDeviceStatus { return d.status(nil) }

// Failed is the status of a device whose ADD has failed; message is the error, of which
// the first 32 KiB are kept.
func (d Device) Failed(message string) resourceapi.AllocatedDeviceStatus {
	const limit = 32 << 10 // of metav1.Condition's message, in bytes
	message = strings.ToValidUTF8(message, "\ufffd")
	if len(message) > limit {
		message = strings.ToValidUTF8(message[:limit], "") // without half a rune
	}
	return d.status(nil, metav1.Condition{Status: metav1.ConditionFalse, Reason: "NetworkInterfaceNotReady", Message: message})
}

func (d Device) status(result json.RawMessage, conditions ...metav1.Condition) resourceapi.AllocatedDeviceStatus {
	for n := range conditions {
		conditions[n].Type, conditions[n].LastTransitionTime = "Ready", d.Since
	}
	data, _ := Data(result, d.Shown)
	return resourceapi.AllocatedDeviceStatus{
		Driver: d.Driver, Pool: d.Pool, Device: d.Name, ShareID: (*string)(d.ShareID), Conditions: conditions, Data: data,
	}
}

// Data is a CNI result as far as the API takes it, an object of at most 10 KiB, with the device
// under [cluster.DeviceKey]; nil = there is neither. If that is too long, routes and DNS settings
// are left out, and if need be the whole result, and at last everything. The warnings say so.
//
// The result is encoded again, as the API server does: it measures its own text.
func Data(result json.RawMessage, of cluster.Device) (data *runtime.RawExtension, warnings []string) {
	const limit = resourceapi.AllocatedDeviceStatusDataMaxLength
	device, whole := map[string]any{}, map[string]any{}
	if err := utiljson.Unmarshal(result, &whole); result != nil && (err != nil || whole == nil) {
		warnings = []string{"data is left out: the CNI result is not a JSON object"}
		whole = map[string]any{}
	}
	if of != (cluster.Device{}) {
		device[cluster.DeviceKey], whole[cluster.DeviceKey] = of, of
	}
	if len(whole) == 0 {
		return nil, warnings
	}
	short := maps.Clone(whole)
	delete(short, "routes")
	delete(short, "dns")
	long := ""
	for _, try := range []struct {
		object map[string]any
		left   string
	}{{whole, ""}, {short, "routes and dns are left out of data: "}, {device, "the CNI result is left out of data: "}} {
		raw, err := json.Marshal(try.object)
		if long == "" {
			long = fmt.Sprintf("it has %d bytes, at most %d are allowed", len(raw), limit)
		}
		if err != nil || len(raw) > limit || len(try.object) == 0 {
			continue
		}
		if try.left != "" {
			warnings = []string{try.left + long}
		}
		return &runtime.RawExtension{Raw: raw}, warnings
	}
	return nil, []string{"data is left out: " + long}
}
