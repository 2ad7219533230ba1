package cluster

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"devinfo-cni.io/pkg/publish"
)

// StatusAnnotation is where Multus says what networks a pod has (Network Custom Resource
// Definition De-facto Standard, section 5).
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// networksAnnotation is where a pod asks for networks (section 4.1.2.1).
const networksAnnotation = "k8s.v1.cni.cncf.io/networks"

// OfMultus returns the attachments in a pod's network-status: all networks but the default
// one, and that too if it has a device; with what the agent says of those that network-status names
// no device of. An annotation that cannot be read, or that is not there though the pod asks for
// networks, becomes one attachment with a problem.
func OfMultus(pod *corev1.Pod) []Network {
	blank := Network{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName}
	text := pod.Annotations[StatusAnnotation]
	if asked := pod.Annotations[networksAnnotation]; text == "" && asked != "" && !pod.Spec.HostNetwork {
		blank.Network, blank.Problem = asked, "it has no network-status: its sandbox is not made yet, or Multus does not run on its node"
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
	published, told := published(pod)
	var list []Network
	for _, n := range networks {
		byNode := n.DeviceInfo == nil && published[n.Interface] != nil
		if byNode {
			n.DeviceInfo = published[n.Interface]
		}
		if n.Default && n.DeviceInfo == nil {
			continue
		}
		a := blank
		a.Network, a.Interface, a.MAC, a.IPs, a.FromNode, a.told = n.Name, n.Interface, n.MAC, n.IPs, byNode, told
		if n.DeviceInfo != nil {
			a.describe(n.DeviceInfo)
		}
		list = append(list, a)
	}
	return list
}

// published is the device information that the agent of the pod's node has published, by interface;
// told is false if it has not.
func published(pod *corev1.Pod) (by map[string]json.RawMessage, told bool) {
	var networks []publish.Network
	if json.Unmarshal([]byte(pod.Annotations[publish.Annotation]), &networks) != nil {
		return nil, false
	}
	by = map[string]json.RawMessage{}
	for _, n := range networks {
		by[n.Interface] = n.DeviceInfo
	}
	return by, true
}
