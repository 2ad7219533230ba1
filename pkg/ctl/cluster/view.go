package cluster

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/view"
)

// A View collects attachments from API objects: pods, then their claims. It keeps only the shown fields, not the objects.
type View struct {
	Waiting bool // also show claims that have no device yet

	list []Network
	pods map[types.UID]place
}

type place struct {
	Network              // its namespace, pod and node
	claims      []string // names of the pod's claims, as far as they are made
	unscheduled string   // why the pod has no node; "" = it has one, or nobody says why
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
	at := place{Network: Network{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName}, unscheduled: unscheduled(pod)}
	for name := range resourceclaim.PodClaims(pod) {
		at.claims = append(at.claims, name)
	}
	v.pods[pod.UID] = at
	for _, c := range pod.Spec.ResourceClaims {
		if _, _, err := resourceclaim.Name(pod, &c); errors.Is(err, resourceclaim.ErrClaimNotFound) {
			v.wait(at, c.Name, Problem("claim-unmade", "claim", c.Name, "template", *c.ResourceClaimTemplateName))
		}
	}
	v.list = append(v.list, OfMultus(pod)...)
}

// Ended reports whether all containers of the pod have terminated for good.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Claims returns the claims of the pods, sorted.
func (v *View) Claims() (names []types.NamespacedName) {
	for _, at := range v.pods {
		for _, name := range at.claims {
			names = append(names, types.NamespacedName{Namespace: at.Namespace, Name: name})
		}
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(names)
}

// Claim adds the attachments of a claim to the pods of its namespace that it is reserved for.
func (v *View) Claim(claim *resourceapi.ResourceClaim) {
	list, name := byClaim(claim), types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}
	switch given := claim.Status.Allocation; {
	case given == nil:
		v.lacks(name, "claim-unallocated")
	case len(list) == 0 && slices.ContainsFunc(given.Devices.Results, func(r resourceapi.DeviceRequestAllocationResult) bool { return r.Driver == view.Driver }):
		v.lacks(name, "claim-unprepared")
	}
	for _, consumer := range claim.Status.ReservedFor {
		of, known := v.pods[consumer.UID]
		if !known || consumer.Resource != "pods" || of.Namespace != claim.Namespace {
			continue
		}
		for _, a := range list {
			a.Pod, a.Node = of.Pod, of.Node
			if pods := len(claim.Status.ReservedFor); pods > 1 && a.Interface != "" && a.Problem == "" {
				a.Problem = Problem("claim-reserved", "claim", claim.Name, "number", strconv.Itoa(pods))
			}
			v.list = append(v.list, a)
		}
	}
}

// NoClaim records that a claim does not exist.
func (v *View) NoClaim(name types.NamespacedName) { v.lacks(name, "claim-absent") }

// lacks adds the claim with a problem to the pods that name it.
func (v *View) lacks(name types.NamespacedName, rule string) {
	for _, at := range v.pods {
		if at.Namespace == name.Namespace && slices.Contains(at.claims, name.Name) {
			v.wait(at, name.Name, Problem(rule, "claim", name.Name, "why", cmp.Or(at.unscheduled, "kubectl describe resourceclaim "+name.Name+" shows why")))
		}
	}
}

// wait adds a claim that has no device yet to a pod.
func (v *View) wait(at place, claim, problem string) {
	at.Claim, at.Problem = claim, problem
	if v.Waiting {
		v.list = append(v.list, at.Network)
	}
}

// Attachments returns the attachments of the pods, ordered by namespace, pod and interface.
func (v *View) Attachments() []Network {
	slices.SortStableFunc(v.list, func(a, b Network) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.Network, b.Network))
	})
	return append([]Network{}, v.list...) // [] in JSON, not null
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
