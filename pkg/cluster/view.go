package cluster

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A View gathers attachments from the objects of the API: pods, then their claims, then the
// slices of their nodes; of many pods, a portion at a time. It keeps no object, and of each no
// more than what is shown.
type View struct {
	list    []Network // by network-status, of pods that are not taken yet
	pods    map[types.UID]place
	claims  map[types.UID][]Network // by the pod that they are reserved for
	devices map[deviceID]offered
}

type place struct {
	namespace, pod, node string
	claims               []string
}

// Pod adds the attachments of a pod's network-status. A pod that has ended has none: its
// network-status stays, but its devices may be others' by now.
func (v *View) Pod(pod *corev1.Pod) {
	if Ended(pod) {
		return
	}
	if v.pods == nil {
		v.pods = map[types.UID]place{}
	}
	v.pods[pod.UID] = place{pod.Namespace, pod.Name, pod.Spec.NodeName, claimsOf(pod)}
	v.list = append(v.list, OfMultus(pod)...)
}

// Ended says that none of the pod's containers runs or will run again.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Pods is how many were added since Take.
func (v *View) Pods() int { return len(v.pods) }

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
	var all []types.NamespacedName
	for _, of := range v.pods {
		for _, name := range of.claims {
			all = append(all, types.NamespacedName{Namespace: of.namespace, Name: name})
		}
	}
	slices.SortFunc(all, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}

// Claim adds the attachments of a claim to the pods for which it is reserved, now or later, in
// place of what it said before.
func (v *View) Claim(claim *resourceapi.ResourceClaim) {
	if v.claims == nil {
		v.claims = map[types.UID][]Network{}
	}
	list := byClaim(claim)
	for _, consumer := range claim.Status.ReservedFor {
		if consumer.Resource == "pods" && len(list) > 0 {
			others := slices.DeleteFunc(v.claims[consumer.UID], func(a Network) bool { return a.Namespace == claim.Namespace && a.Claim == claim.Name })
			v.claims[consumer.UID] = append(others, list...)
		}
	}
}

// ofClaims are the attachments of claims to a pod. One in another namespace has none.
func (v *View) ofClaims(uid types.UID) (list []Network) {
	of := v.pods[uid]
	for _, a := range v.claims[uid] {
		if a.Namespace == of.namespace {
			a.Pod, a.Node = of.pod, of.node
			list = append(list, a)
		}
	}
	return list
}

// Nodes are those of the pods with attachments of claims whose status does not say which device it
// is, and Drivers the drivers, sorted: their slices tell.
func (v *View) Nodes() []string { return v.each(func(a *Network) string { return a.Node }) }

// Drivers are described with Nodes.
func (v *View) Drivers() []string { return v.each(func(a *Network) string { return a.Driver }) }

func (v *View) each(value func(*Network) string) []string {
	all := map[string]bool{}
	for uid := range v.pods {
		for _, a := range v.ofClaims(uid) {
			if a.published != (deviceID{}) {
				all[value(&a)] = true
			}
		}
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}

// Slice takes what a slice says of its devices.
func (v *View) Slice(s *resourceapi.ResourceSlice) {
	if v.devices == nil {
		v.devices = map[deviceID]offered{}
	}
	for n := range s.Spec.Devices {
		id := deviceID{s.Spec.Driver, s.Spec.Pool.Name, s.Spec.Devices[n].Name}
		if s.Spec.Pool.Generation >= v.devices[id].generation {
			v.devices[id] = offered{Published(&s.Spec.Devices[n]), s.Spec.Pool.Generation}
		}
	}
}

// Take returns the attachments of the pods, ordered by namespace, pod and interface, and
// forgets these.
func (v *View) Take() []Network {
	list := append([]Network{}, v.list...) // an empty list is not null in JSON
	for uid := range v.pods {
		for _, a := range v.ofClaims(uid) {
			known := Device{Type: a.Type, Device: a.Device, PF: a.PF, Representor: a.Representor, RDMA: a.RDMA}
			a.tell(known.Or(v.devices[a.published].Device))
			list = append(list, a)
		}
		delete(v.claims, uid)
	}
	v.list, v.pods = nil, nil
	return sorted(list)
}
