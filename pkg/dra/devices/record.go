package devices

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// Metadata is the metadata of an attached device for its pod. [state.Execution] contains it in JSON.
type Metadata struct {
	Attributes  map[string]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
	NetworkData *resourceapi.NetworkDeviceData         `json:"networkData,omitempty"`
}

// MetadataOf returns the recorded metadata of a device that is attached to a network.
func MetadataOf(at *state.Attachment) (m Metadata) { return decoded[Metadata](at.Metadata) }

// Published returns the device in the ResourceSlice, as recorded.
func Published(n *state.NodeDevice) resourceapi.Device {
	return decoded[resourceapi.Device](n.Published)
}

// Shown returns the facts to show for a device. Facts from the device information replace the published ones.
func Shown(at *state.Attachment) (d view.Device) {
	if info, err := devinfo.Parse(at.Info); err == nil {
		d = view.Of(info)
	}
	if at.NodeDevice != nil {
		published := Published(at.NodeDevice)
		d = d.Or(view.Published(func(name string) string { return inventory.Text(published, resourceapi.QualifiedName(name)) }))
	}
	return d
}

// CheckRecord returns the error of a record that is valid but for its parts in types of the Kubernetes API.
func CheckRecord(record *state.Claim) error {
	for _, at := range slices.Concat(record.Attachments, record.Undeleted) {
		var err error
		if at.NodeDevice != nil {
			err = json.Unmarshal(at.NodeDevice.Published, new(resourceapi.Device))
		}
		if at.Metadata != nil {
			err = errors.Join(err, json.Unmarshal(at.Metadata, new(Metadata)))
		}
		if err != nil {
			return fmt.Errorf("request %q: %w", at.Request, err)
		}
	}
	return nil
}

// decoded returns a part of a record that [CheckRecord] has accepted.
func decoded[T any](part json.RawMessage) (v T) {
	_ = json.Unmarshal(part, &v)
	return v
}

// Encoded returns a part of a record. Types of the Kubernetes API always have an encoding.
func Encoded(part any) json.RawMessage {
	text, _ := json.Marshal(part)
	return text
}
