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
}

// Attached is the status of a device after ADD. The warnings say what is left out.
func (d Device) Attached(result json.RawMessage, network *resourceapi.NetworkDeviceData) (resourceapi.AllocatedDeviceStatus, []string) {
	data, warnings := Data(result)
	s := d.status(metav1.ConditionTrue, ReasonReady, messageReady)
	s.Data, s.NetworkData = data, network
	return s, warnings
}

// Failed is the status of a device whose ADD has failed; message is the error, of which
// the first 32 KiB are kept.
func (d Device) Failed(message string) resourceapi.AllocatedDeviceStatus {
	message = strings.ToValidUTF8(message, "\ufffd")
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") // without half a rune
	}
	return d.status(metav1.ConditionFalse, ReasonNotReady, message)
}

func (d Device) status(status metav1.ConditionStatus, reason, message string) resourceapi.AllocatedDeviceStatus {
	return resourceapi.AllocatedDeviceStatus{
		Driver: d.Driver, Pool: d.Pool, Device: d.Name, ShareID: (*string)(d.ShareID),
		Conditions: []metav1.Condition{{Type: Ready, Status: status, Reason: reason, Message: message, LastTransitionTime: d.Since}},
	}
}

// Data is a CNI result as far as the API takes it: an object of at most 10 KiB. A
// longer one goes without its routes and DNS settings, and if that is not enough, or if
// it is no object, there is no data. The warnings say so.
//
// The text is not the plugin's: the API server decodes and encodes what it gets, and it
// is the length of its own text that it measures.
func Data(result json.RawMessage) (*runtime.RawExtension, []string) {
	const limit = resourceapi.AllocatedDeviceStatusDataMaxLength
	var object map[string]any
	if err := utiljson.Unmarshal(result, &object); err != nil || object == nil {
		return nil, []string{"data is left out: the CNI result is not a JSON object"}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return nil, []string{fmt.Sprintf("data is left out: %v", err)}
	}
	full := len(raw)
	if full <= limit {
		return &runtime.RawExtension{Raw: raw}, nil
	}
	delete(object, "routes")
	delete(object, "dns")
	if raw, err = json.Marshal(object); err == nil && len(raw) <= limit {
		return &runtime.RawExtension{Raw: raw}, []string{fmt.Sprintf("routes and dns are left out of data: it has %d bytes, at most %d are allowed", full, limit)}
	}
	return nil, []string{fmt.Sprintf("data is left out: it has %d bytes, at most %d are allowed", full, limit)}
}
