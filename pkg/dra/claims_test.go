package dra_test

import (
	"fmt"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// A want is one request of a claim.
type netRequest struct{ request, ifName, behave string }

// claimOf is an allocated claim for the pod, whose networks run the plugin "fake".
func (r *rig) claimOf(name string, uid types.UID, pod string, wants ...netRequest) *resourceapi.ResourceClaim {
	return claimIn(r.dir, name, uid, pod, wants...)
}

func claimIn(dir, name string, uid types.UID, pod string, wants ...netRequest) *resourceapi.ResourceClaim {
	var all []request
	for _, w := range wants {
		late := ""
		if behave, ok := strings.CutPrefix(w.behave, "late "); ok {
			w.behave, late = behave, `"waitForAttach":false,`
		}
		all = append(all, request{name: w.request, device: "cni", share: types.UID("share-" + string(uid) + w.request), ifName: w.ifName, parameters: late +
			network(fmt.Sprintf(`{"type":"fake","dir":%q,"behave":%q,"capabilities":{"CNIDeviceInfoFile":true}}`, dir, w.behave))})
	}
	return allocated(name, uid, pod, all...)
}

// A request is one of a claim, and what the scheduler has allocated to it.
type request struct {
	name       string // "request/subrequest" where a list of alternatives was given
	device     string
	share      types.UID // "" = the device is the claim's alone
	count      int64
	ifName     string
	parameters string // of its class, beside ifName; "" = it has none at all
}

// allocated is a claim with these requests, reserved for a pod.
func allocated(name string, uid types.UID, pod string, requests ...request) *resourceapi.ResourceClaim {
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid}}
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
			result.ShareID = &r.share
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

// ownClaim is a claim of one device, with these parameters of its class; "" = none.
func ownClaim(uid types.UID, device, parameters string) *resourceapi.ResourceClaim {
	return allocated("claim-"+string(uid), uid, "pod", request{name: "r", device: device, ifName: "net1", parameters: parameters})
}

// setIfName has the configuration of a claim's first request say another name than net1.
func setIfName(claim *resourceapi.ResourceClaim, ifName string) {
	raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = []byte(strings.ReplaceAll(string(*raw), "net1", ifName))
}

// network is a configuration of those plugins.
func network(plugins string) string {
	return `"config":{"cniVersion":"1.0.0","name":"net","plugins":[` + plugins + `]}`
}

// requestFor is a request for a device that goes into a network of that plugin.
func requestFor(name, device, ifName, plugin string, count int64) request {
	r := request{name: name, device: device, ifName: ifName, parameters: network(`{"type":"` + plugin + `"}`), count: count}
	if device == pf {
		r.share = types.UID("share-" + name)
	}
	return r
}

// claimFor is a claim of the pod "pod" with these requests.
func claimFor(uid types.UID, all ...request) *resourceapi.ResourceClaim {
	return allocated("claim-"+string(uid), uid, "pod", all...)
}

// makeExclusive allocates a claim's devices to the claim alone.
func makeExclusive(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	for n := range claim.Status.Allocation.Devices.Results {
		claim.Status.Allocation.Devices.Results[n].ShareID = nil
	}
	return claim
}
