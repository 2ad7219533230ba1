// Package metadata says what became of a network: to the pod, as device attributes and
// network data in its metadata file (KEP-5304), and to the API server, as the status of
// an allocated device (resource.k8s.io/v1, AllocatedDeviceStatus).
//
// Values in, values out; of the host it reads only what sysfs says of a PCI function.
// Everything is within the API's limits: what is not would have all of it refused, so
// it is left out, and a warning says so.
package metadata

import (
	"encoding/json"
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"devinfo-cni.io/pkg/cluster"
)

// The condition of a device, as the Device Configuration API has it.
const (
	Ready          = "Ready"                    // type
	ReasonReady    = "NetworkInterfaceReady"    // for status True
	ReasonNotReady = "NetworkInterfaceNotReady" // for status False

	messageReady = "CNI-DRA-Driver has configured the device."
	maxMessage   = 32 << 10 // of metav1.Condition's message, in bytes
)

// Device is an allocated device of ours.
type Device struct {
	Driver, Pool, Name string
	ShareID            *types.UID  // of the allocation; nil = it has none
	Since              metav1.Time // when the device became what it is, or stopped being so
	Shown              cluster.Device
}

// Attached is the status of a device after ADD. The warnings say what is left out.
func (d Device) Attached(result json.RawMessage, network *resourceapi.NetworkDeviceData) (resourceapi.AllocatedDeviceStatus, []string) {
	data, warnings := Data(result, d.Shown)
	s := d.status(metav1.ConditionTrue, ReasonReady, messageReady)
	s.Data, s.NetworkData = data, network
	return s, warnings
}

// Bare is the status of a device that the driver attaches to no network.
func (d Device) Bare() resourceapi.AllocatedDeviceStatus {
	s := d.status("", "", "")
	s.Conditions = nil
	s.Data, _ = Data(nil, d.Shown)
	return s
}

// Failed is the status of a device whose ADD has failed; message is the error, of which
// the first 32 KiB are kept.
func (d Device) Failed(message string) resourceapi.AllocatedDeviceStatus {
	message = strings.ToValidUTF8(message, "\ufffd")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") // without half a rune
	}
	s := d.status(metav1.ConditionFalse, ReasonNotReady, message)
	s.Data, _ = Data(nil, d.Shown)
	return s
}

func (d Device) status(status metav1.ConditionStatus, reason, message string) resourceapi.AllocatedDeviceStatus {
	return resourceapi.AllocatedDeviceStatus{
		Driver: d.Driver, Pool: d.Pool, Device: d.Name, ShareID: (*string)(d.ShareID),
		Conditions: []metav1.Condition{{Type: Ready, Status: status, Reason: reason, Message: message, LastTransitionTime: d.Since}},
	}
}

// Data is a CNI result as far as the API takes it, an object of at most 10 KiB, with the device
// under [cluster.DeviceKey]; nil = there is neither. What is longer goes without the result's
// routes and DNS settings; if that is not enough, or if the result is no object, without the
// result; and at last there is no data. The warnings say so.
//
// The text is not the plugin's: the API server decodes and encodes what it gets, and it
// is the length of its own text that it measures.
func Data(result json.RawMessage, of cluster.Device) (data *runtime.RawExtension, warnings []string) {
	const limit = resourceapi.AllocatedDeviceStatusDataMaxLength
	object, size := map[string]any{}, 0
	fits := func() bool {
		raw, err := json.Marshal(object)
		if size = max(size, len(raw)); err != nil || len(raw) > limit || len(object) == 0 {
			return false
		}
		data = &runtime.RawExtension{Raw: raw}
		return true
	}
	if err := utiljson.Unmarshal(result, &object); result != nil && (err != nil || object == nil) {
		warnings = []string{"data is left out: the CNI result is not a JSON object"}
		object = nil
	}
	if object == nil {
		object = map[string]any{}
	}
	if of != (cluster.Device{}) {
		object[cluster.DeviceKey] = of
	}
	if fits() || len(object) == 0 {
		return data, warnings
	}
	long := fmt.Sprintf("it has %d bytes, at most %d are allowed", size, limit)
	delete(object, "routes")
	delete(object, "dns")
	if fits() {
		return data, []string{"routes and dns are left out of data: " + long}
	}
	object = map[string]any{cluster.DeviceKey: of}
	if of != (cluster.Device{}) && fits() {
		return data, []string{"the CNI result is left out of data: " + long}
	}
	return nil, []string{"data is left out: " + long}
}
