package dra_test

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// netRequest is a request of a claim for a network of the plugin "fake".
type netRequest struct{ request, ifName, behave string }

// claimOf returns an allocated claim of a pod, whose networks use the plugin "fake".
func (r *rig) claimOf(name, uid, pod string, wants ...netRequest) *resourceapi.ResourceClaim {
	return claimIn(r.dir, name, uid, pod, wants...)
}

func claimIn(dir, name, uid, pod string, wants ...netRequest) *resourceapi.ResourceClaim {
	var all []request
	for _, w := range wants {
		late := ""
		if behave, ok := strings.CutPrefix(w.behave, "late "); ok {
			w.behave, late = behave, `"waitForAttach":false,`
		}
		all = append(all, request{name: w.request, device: "cni", share: "share-" + uid + w.request, ifName: w.ifName, parameters: late +
			network(fmt.Sprintf(`{"type":"fake","dir":%q,"behave":%q,"capabilities":{"CNIDeviceInfoFile":true}}`, dir, w.behave))})
	}
	return allocated(name, uid, pod, all...)
}

// fromTemplate makes a claim one that was made from a template for its pod.
func fromTemplate(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	pod := claim.Status.ReservedFor[0]
	claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}}
	return claim
}

// request is a request of a claim, with the device that the scheduler has allocated.
type request struct {
	name       string // "request/subrequest" for an alternative of firstAvailable
	device     string
	share      string // "" = the device is allocated exclusively
	count      int64
	ifName     string
	parameters string // parameters of its class, except ifName; "" = no parameters
}

// allocated returns a claim with these requests, reserved for a pod.
func allocated(name, uid, pod string, requests ...request) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(uid)}}
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod, UID: types.UID("uid-" + pod)}}
	claim.Status.Allocation = &resourceapi.AllocationResult{}
	devices := &claim.Status.Allocation.Devices
	for _, r := range requests {
		base, sub, listed := strings.Cut(r.name, "/")
		asked := resourceapi.DeviceRequest{Name: base, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "c", Count: r.count}}
		if listed {
			asked.Exactly, asked.FirstAvailable = nil, []resourceapi.DeviceSubRequest{{Name: "other", DeviceClassName: "d"}, {Name: sub, DeviceClassName: "c", Count: r.count}}
		}
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, asked)
		result := resourceapi.DeviceRequestAllocationResult{Request: r.name, Driver: driverName, Pool: "node1", Device: r.device}
		if r.share != "" {
			result.ShareID = (*types.UID)(&r.share)
		}
		devices.Results = append(devices.Results, result)
		if r.parameters == "" {
			continue
		}
		raw := fmt.Appendf(nil, `{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig","ifName":%q,%s}`, r.ifName, r.parameters)
		devices.Config = append(devices.Config, resourceapi.DeviceAllocationConfiguration{
			Source: resourceapi.AllocationConfigSourceClass, Requests: []string{r.name},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: driverName, Parameters: runtime.RawExtension{Raw: raw}}}})
	}
	return claim
}

// ownClaim returns a claim of one device, with these parameters of its class.
func ownClaim(uid string, device, parameters string) *resourceapi.ResourceClaim {
	return allocated("claim-"+uid, uid, "pod", request{name: "r", device: device, ifName: "net1", parameters: parameters})
}

// setIfName replaces net1 in the configuration of a claim's first request.
func setIfName(claim *resourceapi.ResourceClaim, ifName string) {
	raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = []byte(strings.ReplaceAll(string(*raw), "net1", ifName))
}

// network returns the parameter "config" with these plugins.
func network(plugins string) string {
	return `"config":{"cniVersion":"1.0.0","name":"net","plugins":[` + plugins + `]}`
}

// requestFor returns a request for a device, with a network of one plugin.
func requestFor(name, device, ifName, plugin string, count int64) request {
	r := request{name: name, device: device, ifName: ifName, parameters: network(`{"type":"` + plugin + `"}`), count: count}
	if device == pf {
		r.share = "share-" + name
	}
	return r
}

// claimFor returns a claim of the pod "pod" with these requests.
func claimFor(uid string, all ...request) *resourceapi.ResourceClaim {
	return allocated("claim-"+uid, uid, "pod", all...)
}

// makeExclusive allocates the devices of a claim exclusively.
func makeExclusive(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for n := range claim.Status.Allocation.Devices.Results {
		claim.Status.Allocation.Devices.Results[n].ShareID = nil
	}
	return claim
}
