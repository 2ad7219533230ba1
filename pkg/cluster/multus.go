package cluster

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// StatusAnnotation is where Multus says what networks a pod has (Network Custom Resource
// Definition De-facto Standard, section 5).
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// OfMultus returns the attachments in a pod's network-status: all networks but the default
// one, and that too if it has a device. An annotation that cannot be read becomes one
// attachment with a problem.
func OfMultus(pod *corev1.Pod) []Attachment {
	text := pod.Annotations[StatusAnnotation]
	if text == "" {
		return nil
	}
	blank := Attachment{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName}
	var networks []struct {
		Name       string
		Interface  string
		IPs        []string
		MAC        string
		Default    bool
		DeviceInfo json.RawMessage `json:"device-info"`
	}
	if err := json.Unmarshal([]byte(text), &networks); err != nil {
		blank.Problem = fmt.Sprintf("annotation %s: %v", StatusAnnotation, err)
		return []Attachment{blank}
	}
	var list []Attachment
	for _, n := range networks {
		if n.Default && n.DeviceInfo == nil {
			continue
		}
		a := blank
		a.Network, a.Interface, a.MAC, a.IPs = n.Name, n.Interface, n.MAC, n.IPs
		if n.DeviceInfo != nil {
			a.describe(n.DeviceInfo)
		}
		list = append(list, a)
	}
	return list
}
