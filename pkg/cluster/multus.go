package cluster

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// StatusAnnotation is the annotation where Multus lists the networks of a pod (Network Custom Resource Definition
// De-facto Standard, section 5).
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// networksAnnotation is the annotation where a pod requests networks (section 4.1.2.1).
const networksAnnotation = "k8s.v1.cni.cncf.io/networks"

// OfMultus returns the attachments in a pod's network-status: all secondary networks, and the default network
// if it has a device. If the annotation is invalid, or missing although the pod requests networks, it returns
// one attachment with a problem.
func OfMultus(pod *corev1.Pod) []Network {
	blank := Network{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName}
	text := pod.Annotations[StatusAnnotation]
	if asked := pod.Annotations[networksAnnotation]; text == "" && asked != "" && !pod.Spec.HostNetwork {
		blank.Network, blank.Problem = asked, "the pod has no network-status: its sandbox does not exist yet, or Multus does not run on its node"
		return []Network{blank}
	}
	if text == "" {
		return nil
	}
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
		return []Network{blank}
	}
	var list []Network
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
