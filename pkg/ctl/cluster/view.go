package cluster

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/view"
)

// A View collects attachments from API objects: pods, then their claims. It keeps only the shown fields, not the objects.
type View struct {
	Waiting bool // also show claims that have no device yet

	list   []Network
	pods   map[types.UID]place
	claims []types.NamespacedName // claims of the pods
}

type place struct {
	namespace, pod, node string
	claims               []string
	unscheduled          string // why the pod has no node; "" = it has one, or nobody says why
}

// Pod adds the attachments in a pod's network-status. It skips a pod that has ended, because its
// network-status stays while other pods may use its devices.
func (v *View) Pod(pod *corev1.Pod) {
	if Ended(pod) {
		return
	}
	if v.pods == nil {
		v.pods = map[types.UID]place{}
	}
	at := place{pod.Namespace, pod.Name, pod.Spec.NodeName, claimsOf(pod), unscheduled(pod)}
	v.pods[pod.UID] = at
	v.unmade(pod)
	for _, name := range at.claims {
		v.claims = append(v.claims, types.NamespacedName{Namespace: pod.Namespace, Name: name})
	}
	v.list = append(v.list, OfMultus(pod)...)
}

// Ended reports whether all containers of the pod have terminated for good.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// claimsOf returns the names of a pod's claims: named ones, generated ones, and the claim for extended
// resources.
func claimsOf(pod *corev1.Pod) (names []string) {
	for _, c := range pod.Spec.ResourceClaims {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	for _, c := range pod.Status.ResourceClaimStatuses {
		if c.ResourceClaimName != nil {
			names = append(names, *c.ResourceClaimName)
		}
	}
	if c := pod.Status.ExtendedResourceClaimStatus; c != nil {
		names = append(names, c.ResourceClaimName)
	}
	return names
}

// Claims returns the claims of the pods, sorted.
func (v *View) Claims() []types.NamespacedName {
	slices.SortFunc(v.claims, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	v.claims = slices.Compact(v.claims)
	return v.claims
}

// Claim adds the attachments of a claim to the pods of its namespace that it is reserved for.
func (v *View) Claim(claim *resourceapi.ResourceClaim) {
	list := byClaim(claim)
	switch given := claim.Status.Allocation; {
	case given == nil:
		v.wait(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, "claim-unallocated")
	case len(list) == 0 && slices.ContainsFunc(given.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver == driver }):
		v.wait(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, "claim-unprepared")
	}
	for _, consumer := range claim.Status.ReservedFor {
		of, known := v.pods[consumer.UID]
		if !known || consumer.Resource != "pods" || of.namespace != claim.Namespace {
			continue
		}
		for _, a := range list {
			a.Pod, a.Node = of.pod, of.node
			if pods := len(claim.Status.ReservedFor); pods > 1 && a.Interface != "" && a.Problem == "" {
				a.Problem = Problem("claim-reserved", "claim", claim.Name, "number", strconv.Itoa(pods))
			}
			v.list = append(v.list, a)
		}
	}
}

// driver is the name of cni-dra-driver in claims.
const driver = "cni.dra.networking.x-k8s.io"

// NoClaim records that a claim does not exist.
func (v *View) NoClaim(name types.NamespacedName) { v.wait(name, "claim-absent") }

// wait adds the claim with a problem to the pods that name it.
func (v *View) wait(name types.NamespacedName, rule string) {
	for _, at := range v.pods {
		if v.Waiting && at.namespace == name.Namespace && slices.Contains(at.claims, name.Name) {
			v.list = append(v.list, Network{Namespace: at.namespace, Pod: at.pod, Node: at.node, Claim: name.Name, Problem: Problem(rule, "claim", name.Name, "why", cmp.Or(at.unscheduled, "kubectl describe resourceclaim "+name.Name+" shows why"))})
		}
	}
}

// unmade adds the claims of a pod that are not made from their templates yet.
func (v *View) unmade(pod *corev1.Pod) {
	for _, c := range pod.Spec.ResourceClaims {
		made := slices.ContainsFunc(pod.Status.ResourceClaimStatuses, func(s corev1.PodResourceClaimStatus) bool { return s.Name == c.Name })
		if v.Waiting && c.ResourceClaimTemplateName != nil && !made {
			v.list = append(v.list, Network{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Claim: c.Name,
				Problem: Problem("claim-unmade", "claim", c.Name, "template", *c.ResourceClaimTemplateName)})
		}
	}
}

// Attachments returns the attachments of the pods, ordered by namespace, pod and interface.
func (v *View) Attachments() []Network {
	if len(v.list) == 0 {
		return []Network{} // [] in JSON, not null
	}
	slices.SortStableFunc(v.list, func(a, b Network) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.Network, b.Network))
	})
	return v.list
}

// StatusAnnotation is the annotation where Multus lists the networks of a pod (Network Custom Resource Definition
// De-facto Standard, section 5).
const StatusAnnotation = "k8s.v1.cni.cncf.io/network-status"

// OfMultus returns the attachments in a pod's network-status: all secondary networks, and the default network
// if it has a device. If the annotation is invalid, or missing although the pod requests networks, it returns
// one attachment with a problem.
func OfMultus(pod *corev1.Pod) []Network {
	blank := Network{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName, Requests: requested(pod)}
	for _, v := range pod.Spec.Volumes {
		if v.HostPath != nil {
			blank.Mounts = append(blank.Mounts, v.HostPath.Path)
		}
	}
	const networksAnnotation = "k8s.v1.cni.cncf.io/networks" // where a pod requests networks (section 4.1.2.1)
	text := pod.Annotations[StatusAnnotation]
	if asked := pod.Annotations[networksAnnotation]; text == "" && asked != "" && !pod.Spec.HostNetwork {
		blank.Network, blank.Problem, blank.Waits = asked, cmp.Or(unscheduled(pod), Problem("no-status")), pod.Spec.NodeName != ""
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
		blank.Problem = Problem("bad-status", "annotation", StatusAnnotation, "error", err.Error())
		return []Network{blank}
	}
	var list []Network
	for _, n := range networks {
		if string(n.DeviceInfo) == "null" { // which encoding/json keeps
			n.DeviceInfo = nil
		}
		if n.Default && n.DeviceInfo == nil {
			continue
		}
		a := blank
		a.Network, a.Interface, a.MAC, a.IPs = n.Name, n.Interface, n.MAC, n.IPs
		info, err := devinfo.Parse(n.DeviceInfo)
		if err == nil {
			if a.DeviceInfo, a.Device = n.DeviceInfo, view.Of(info); a.Device.Device == "" {
				err = info.Validate().Err()
			}
		}
		if err != nil && n.DeviceInfo != nil {
			a.Problem = Problem("bad-info", "error", err.Error())
		}
		list = append(list, a)
	}
	return list
}

// unscheduled returns the scheduler's message for a pod without a node.
func unscheduled(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Message != "" {
			return Problem("unscheduled", "message", c.Message)
		}
	}
	return ""
}

// requested returns the extended resources that containers of the pod request.
func requested(pod *corev1.Pod) (names []string) {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name, amount := range list {
				if strings.Contains(string(name), "/") && !amount.IsZero() {
					names = append(names, string(name))
				}
			}
		}
	}
	return names
}
