// Package cniconfig turns an allocated ResourceClaim (resource.k8s.io/v1) into the networks that the driver
// attaches a pod to: which CNI configuration, for which interface, and whether its author may choose it.
//
// The parameters are those of the CNI DRA driver's Device Configuration API, {ifName, config}. The configuration
// comes from the DeviceClass or from the claim, the interface name from either, and the claim's goes first.
// Extensions of ours: a class may have waitForAttach: false, device (where the allocated device goes), driver (what it is
// bound to), and allowedClaimArgs with the capability arguments that a claim may give.
//
// Root runs a CNI configuration on the node. That of a DeviceClass is its administrator's. Everybody who may
// create pods can write that of a claim, so each plugin that it may run must be in [Policy].AllowClaimTypes. Only
// a plugin's source could tell which it runs: main plugins run ipam.type, some run delegates, delegate, or a
// configuration of their own shape. So each "type" at any depth counts: data that is taken for a plugin is refused
// and can be allowed, a plugin that is taken for data would be run. A key that differs from "type" by letter case
// is refused, because Go's encoding/json reads it as "type".
package cniconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"devinfo-cni.io/pkg/dra/state"
)

// Policy is what a node accepts.
type Policy struct {
	Driver string // the DRA driver's name, "cni.dra.networking.x-k8s.io"
	Pool   string // of the driver's devices on this node, the node's name; "" = any
	// AllowClaimTypes are the CNI plugin types that the configuration of a claim may
	// name. Each trusts all authors of claims as root of the node. nil = a claim may
	// give an interface name, but no configuration.
	AllowClaimTypes []string
	// Bare reports whether a request may have a device of that name without a configuration:
	// somebody else attaches it. nil = none may.
	Bare func(device string) bool

	allowAll bool // in place of AllowClaimTypes: the node is unknown
}

// Network is one device of a claim's request as it is recorded: one interface in the pod. Its List
// is null if the request has no configuration: see [Policy].Bare.
type Network struct {
	state.Attachment
	// How says where the device goes in List, as the class has it: see [ParseHow].
	How json.RawMessage
}

// Resolve returns a network for each device that a claim was allocated from our driver, in the
// order of the allocation. All errors are a [*Refusal]: the same claim is always refused.
func Resolve(claim *resourceapi.ResourceClaim, p Policy) ([]Network, error) {
	allocation := claim.Status.Allocation
	if allocation == nil {
		return nil, refuse("", "the claim is not allocated", "a scheduler has to allocate it")
	}
	var networks []Network
	devices := map[string]int{} // that each request has so far
	numbers := numbering{}
	for _, result := range allocation.Devices.Results {
		if result.Driver != p.Driver {
			continue
		}
		request := resourceclaim.BaseRequestRef(result.Request)
		n, err := p.network(claim, result, devices[request], numbers)
		devices[request]++
		if err != nil {
			err.Request = result.Request
			return nil, err
		}
		networks = append(networks, n)
	}
	if len(networks) == 0 {
		return nil, refuse("", fmt.Sprintf("nothing is allocated from driver %s", p.Driver), "ask for it by a DeviceClass that selects its devices")
	}
	if err := Distinct(networks, nil); err != nil {
		return nil, err
	}
	return networks, nil
}

// Pods are those that a claim is reserved for, at least one. An error is a [*Refusal].
func Pods(claim *resourceapi.ResourceClaim) ([]state.Pod, error) {
	var pods []state.Pod
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup != "" || r.Resource != "pods" {
			return nil, refuse("", fmt.Sprintf("a claim is for pods, this one is reserved for %q of API group %q", r.Resource, r.APIGroup),
				"use a ResourceClaimTemplate, which makes a claim for each pod")
		}
		pods = append(pods, state.Pod{Namespace: claim.Namespace, Name: r.Name, UID: r.UID})
	}
	if pods == nil {
		return nil, refuse("", "the claim is reserved for no pod", "a scheduler has to reserve it")
	}
	return pods, nil
}

// network makes a network of the index-th device of a request.
func (p Policy) network(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult, index int, numbers numbering) (Network, *Refusal) {
	if p.Pool != "" && result.Pool != p.Pool {
		return Network{}, refuse("", fmt.Sprintf("the device is of pool %q, this node's is %q", result.Pool, p.Pool),
			"let the scheduler allocate it for the node of the pod")
	}
	several, err := checkRequest(claim.Spec.Devices.Requests, result)
	if err != nil {
		return Network{}, err
	}
	configs := resourceclaim.ConfigForResult(claim.Status.Allocation.Devices.Config, result)
	if p.Bare != nil && p.Bare(result.Device) && !slices.ContainsFunc(configs, p.isOurs) {
		return allocated(result, index), nil
	}
	return p.attach(configs, result, index, several || index > 0, numbers)
}

// allocated is the index-th device of a request.
func allocated(result resourceapi.DeviceRequestAllocationResult, index int) (n Network) {
	n.Request, n.Index, n.Pool, n.Device, n.ShareID = result.Request, index, result.Pool, result.Device, result.ShareID
	n.Phase = state.Prepared
	return n
}

// SameShare reports whether two are of one share of a device, or of no share.
func SameShare(a, b *types.UID) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// attach makes a network of the index-th device of a request, which may have several, and of the
// configs for it.
func (p Policy) attach(configs []resourceapi.DeviceAllocationConfiguration, result resourceapi.DeviceRequestAllocationResult, index int, several bool, numbers numbering) (Network, *Refusal) {
	params, err := p.parameters(configs)
	if err != nil {
		return Network{}, err
	}
	if several && !strings.Contains(params.ifName, indexMark) {
		return Network{}, refuse("ifName", fmt.Sprintf("ifName %s: the request may have several devices, and each makes an interface", quote(params.ifName)),
			`write `+indexMark+` where its number is to be, such as "net`+indexMark+`", or ask for ExactCount, count: 1`)
	}
	ifName := numbers.next(params.ifName)
	if err := checkIfName(ifName); err != nil {
		return Network{}, err
	}
	parsed, wrong := list(params.config)
	if wrong != nil {
		return Network{}, wrong[0]
	}
	for _, key := range slices.Sorted(maps.Keys(params.values)) {
		if !slices.ContainsFunc(parsed.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Capabilities[key] }) {
			return Network{}, refuse(key, fmt.Sprintf("%s %s: no plugin of network %s takes it", key, clip(string(params.values[key])), parsed.Name),
				fmt.Sprintf(`leave it out, or have the DeviceClass give a plugin "capabilities": {%q: true}`, key))
		}
	}
	n := allocated(result, index)
	n.IfName, n.Network, n.CNIVersion, n.List = ifName, parsed.Name, parsed.CNIVersion, parsed.Bytes
	n.Late, n.Capabilities, n.How, n.Driver = params.late, params.values, params.device, params.driver
	return n, nil
}

func (p Policy) isOurs(c resourceapi.DeviceAllocationConfiguration) bool {
	return c.Opaque != nil && c.Opaque.Driver == p.Driver
}

// checkRequest refuses what no network can be made for, and reports whether a request may have
// several devices. An unknown mode of allocation must be refused, says the API.
func checkRequest(requests []resourceapi.DeviceRequest, result resourceapi.DeviceRequestAllocationResult) (several bool, wrong *Refusal) {
	isTrue := func(b *bool) bool { return b != nil && *b }
	r := lookUp(requests, result.Request)
	switch {
	case r == nil:
		return false, refuse("", "it is not in the claim's spec", "allocate the claim anew")
	case isTrue(r.AdminAccess) || isTrue(result.AdminAccess):
		return false, refuse("adminAccess", "adminAccess: true: it gives devices that others have, and none of these is attached twice", "leave adminAccess out")
	case !slices.Contains([]resourceapi.DeviceAllocationMode{"", resourceapi.DeviceAllocationModeExactCount, resourceapi.DeviceAllocationModeAll}, r.AllocationMode):
		return false, refuse("allocationMode", fmt.Sprintf("allocationMode %q is not known", r.AllocationMode), "use allocationMode: ExactCount or All, or update the driver")
	}
	return r.AllocationMode == resourceapi.DeviceAllocationModeAll || r.Count > 1, nil
}

// lookUp finds a request of a claim's spec, or a subrequest, by how an allocation names it;
// nil = it is not there. Of a subrequest it returns mode and count.
func lookUp(requests []resourceapi.DeviceRequest, ref string) *resourceapi.ExactDeviceRequest {
	for _, r := range requests {
		if r.Exactly != nil && r.Name == ref {
			return r.Exactly
		}
		for _, sub := range r.FirstAvailable {
			if resourceclaim.CreateSubRequestRef(r.Name, sub.Name) == ref {
				return &resourceapi.ExactDeviceRequest{AllocationMode: sub.AllocationMode, Count: sub.Count}
			}
		}
	}
	return nil
}

// Refusal says that a claim is against a rule of the driver.
type Refusal struct {
	Request string // of the claim; "" = the whole claim
	At      string // the key that it is about, below what was checked: "config.plugins[0].type"; "" = all of it
	Rule    string // what is there, and the rule that it breaks
	Remedy  string // what its author can do
}

func (r *Refusal) Error() string {
	if r.Request == "" {
		return fmt.Sprintf("%s; %s", r.Rule, r.Remedy)
	}
	return fmt.Sprintf("request %q: %s; %s", r.Request, r.Rule, r.Remedy)
}

func refuse(at, rule, remedy string) *Refusal { return &Refusal{At: at, Rule: rule, Remedy: remedy} }

// refusals is all that is wrong.
type refusals []*Refusal

func (l *refusals) add(at, rule, remedy string) { *l = append(*l, refuse(at, rule, remedy)) }

// quote keeps a message readable that quotes the configuration.
func quote(s string) string { return fmt.Sprintf("%q", clip(s)) }

func clip(s string) string {
	const longest = 80
	if r := []rune(s); len(r) > longest {
		return string(r[:longest]) + "…"
	}
	return s
}
