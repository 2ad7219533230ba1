package cluster

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A View gathers attachments from the objects of the API: pods, then their claims, then the
// slices of their nodes. It keeps no object, and of each no more than what is shown.
type View struct {
	list    []Attachment
	pods    map[types.UID]place
	claims  map[types.NamespacedName]bool
	devices map[deviceID]offered // that claims of the pods have
}

type place struct{ namespace, pod, node string }

// Pod adds the attachments of a pod's network-status. A pod that has ended has none: its
// network-status stays, but its devices may be others' by now.
func (v *View) Pod(pod *corev1.Pod) {
	if Ended(pod) {
		return
	}
	if v.pods == nil {
		v.pods, v.claims, v.devices = map[types.UID]place{}, map[types.NamespacedName]bool{}, map[deviceID]offered{}
	}
	v.pods[pod.UID] = place{pod.Namespace, pod.Name, pod.Spec.NodeName}
	for _, name := range claimsOf(pod) {
		v.claims[types.NamespacedName{Namespace: pod.Namespace, Name: name}] = true
	}
	v.list = append(v.list, OfMultus(pod)...)
}

// claimsOf are the names of a pod's claims: its own, those made of templates, and that of its
// extended resources.
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

// Claims are the claims of the pods, sorted.
func (v *View) Claims() []types.NamespacedName {
	return slices.SortedFunc(maps.Keys(v.claims), func(a, b types.NamespacedName) int {
		return slices.Compare([]string{a.Namespace, a.Name}, []string{b.Namespace, b.Name})
	})
}

// Claim adds the attachments of a claim to the pods for which it is reserved.
func (v *View) Claim(claim *resourceapi.ResourceClaim) {
	for _, a := range byClaim(claim, v.pods) {
		v.devices[a.published] = offered{}
		v.list = append(v.list, a)
	}
}

// Nodes are those of the attachments of claims, sorted, and Drivers the drivers: their slices
// tell of the devices what the claims' status does not.
func (v *View) Nodes() []string { return v.ofClaims(func(a *Attachment) string { return a.Node }) }

// Drivers are described with Nodes.
func (v *View) Drivers() []string { return v.ofClaims(func(a *Attachment) string { return a.Driver }) }

func (v *View) ofClaims(value func(*Attachment) string) []string {
	all := map[string]bool{}
	for n := range v.list {
		if a := &v.list[n]; a.Claim != "" && value(a) != "" {
			all[value(a)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Slice takes what a slice says of devices that the pods have.
func (v *View) Slice(s *resourceapi.ResourceSlice) {
	for n := range s.Spec.Devices {
		id := deviceID{s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Devices[n].Name}
		if before, wanted := v.devices[id]; wanted && s.Spec.Pool.Generation >= before.generation {
			v.devices[id] = publishedAs(&s.Spec.Devices[n], s.Spec.Pool.Generation)
		}
	}
}

// List returns the attachments, ordered by namespace, pod and interface.
func (v *View) List() []Attachment {
	list := append([]Attachment{}, v.list...) // an empty list is not null in JSON
	for n := range list {
		if list[n].Claim != "" {
			list[n].fill(v.devices[list[n].published])
		}
	}
	return sorted(list)
}
