// Package publish has a pod say, in an annotation, which devices its networks have: for those
// who read the API and may ask no node. It is what Multus' network-status says only of networks
// with a resourceName.
package publish

import "encoding/json"

// Annotation is a JSON list with a [Network] for each attachment of the pod that the plugin has
// on record, ordered by interface. It tells, and grants nothing: whoever may write the pod may
// change it.
const Annotation = "devinfo-cni.io/network-info"

// Network is an attachment of a pod; its keys are network-status' (Network Custom Resource
// Definition De-facto Standard, section 5).
type Network struct {
	Name       string          `json:"name"`                  // of the CNI network: "name" of its configuration
	Interface  string          `json:"interface"`             // CNI_IFNAME
	DeviceInfo json.RawMessage `json:"device-info,omitempty"` // Device Information Specification 1.1.0; none = it has no device
}

// Pod is one that the API server knows.
type Pod struct{ Namespace, Name, UID string }
