// Package cniconfig determines from an allocated ResourceClaim (resource.k8s.io/v1) the networks to attach its pod
// to: the CNI configuration, the interface name, and whether the author of the claim may choose them.
//
// The parameters are {ifName, config}, as the Device Configuration API of the CNI DRA driver defines. The
// configuration comes from the DeviceClass or the claim. The interface name comes from either, and the claim's has
// priority. The package adds keys for classes: waitForAttach (false: containers start before the attachment), device
// (places in the configuration that get the allocated device), driver (kernel driver to bind the device to), and
// allowedClaimArgs (capability arguments that a claim may set).
//
// CNI plugins run as root on the node. Only administrators write DeviceClasses, but each user who may create pods
// can write a claim. Therefore each plugin that the configuration of a claim may run must be in
// [Policy].AllowClaimTypes. A plugin may run further plugins: main plugins run ipam.type, and some run delegates, a
// delegate, or other keys of their configuration. Since the keys differ by plugin, the package checks each key
// "type" at any depth. This may refuse a "type" that does not name a plugin; an administrator can allow it. Keys
// that differ from "type" by letter case only are refused, because Go's encoding/json reads them as "type".
package cniconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"k8s.io/utils/ptr"

	"devinfo-cni.io/pkg/core/state"
)

// Policy holds the rules of a node for claims.
type Policy struct {
	Driver string // name of the DRA driver, "cni.dra.networking.x-k8s.io"
	Pool   string // pool of the driver's devices on this node, which is the node's name; "" = any pool
	// AllowClaimTypes are the CNI plugin types that the configuration of a claim may use. Each type trusts all
	// authors of claims as root of the node. nil = a claim may set the interface name but no configuration.
	AllowClaimTypes []string
	// Bare reports whether a request may have the device without a configuration, for example because Multus
	// attaches it. nil = each device needs a configuration.
	Bare func(device string) bool
	// Bind puts the device of an attachment into its configuration, if it has one. nil = none needs that.
	Bind func(*state.Attachment, DeviceKeys) *Refusal

	allowAll bool // ignore AllowClaimTypes, because the node is unknown
}

// Resolve returns an attachment for each device that the driver allocated to a claim, in the order of the allocation. It
// becomes one interface of the pod. Its List is nil if the request has no configuration: see [Policy].Bare. Each error is a
// [*Refusal], so a retry for the same claim fails again.
func Resolve(claim *resourceapi.ResourceClaim, p Policy) ([]state.Attachment, error) {
	allocation := claim.Status.Allocation
	if allocation == nil {
		return nil, refuse("", "the claim is not allocated", "wait for the scheduler to allocate it")
	}
	var networks []state.Attachment
	devices := map[string]int{} // number of devices so far, by request
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
		return nil, refuse("", fmt.Sprintf("the claim has no devices of driver %s", p.Driver), "use a DeviceClass that selects its devices")
	}
	if err := Distinct(networks, nil); err != nil {
		return nil, err
	}
	return networks, nil
}

// Pods returns the pods that a claim is reserved for, at least one. The error is a [*Refusal].
func Pods(claim *resourceapi.ResourceClaim) ([]state.Pod, error) {
	var pods []state.Pod
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup != "" || r.Resource != "pods" {
			return nil, refuse("", fmt.Sprintf("the claim is reserved for %q of API group %q, which is not a pod", r.Resource, r.APIGroup),
				"use a ResourceClaimTemplate, which makes a claim for each pod")
		}
		pods = append(pods, state.Pod{Namespace: claim.Namespace, Name: r.Name, UID: string(r.UID)})
	}
	if pods == nil {
		return nil, refuse("", "the claim is not reserved for a pod", "wait for the scheduler to reserve it")
	}
	return pods, nil
}

// network returns the attachment of the index-th device of a request.
func (p Policy) network(claim *resourceapi.ResourceClaim, result resourceapi.DeviceRequestAllocationResult, index int, numbers numbering) (at state.Attachment, err *Refusal) {
	if p.Pool != "" && result.Pool != p.Pool {
		return at, refuse("", fmt.Sprintf("the device belongs to pool %q, not to pool %q of this node", result.Pool, p.Pool),
			"let the scheduler allocate it for the node of the pod")
	}
	several, err := checkRequest(claim.Spec.Devices.Requests, result)
	if err != nil {
		return at, err
	}
	at = state.Attachment{
		Request: result.Request, Index: index, Pool: result.Pool, Device: result.Device, ShareID: (*string)(result.ShareID), Phase: state.Prepared,
	}
	var keys DeviceKeys
	configs := resourceclaim.ConfigForResult(claim.Status.Allocation.Devices.Config, result)
	if p.Bare == nil || !p.Bare(result.Device) || slices.ContainsFunc(configs, p.isOurs) {
		var wrong refusals
		if keys, wrong = p.configure(&at, configs, several || index > 0, numbers); wrong != nil {
			return at, wrong[0]
		}
	}
	if p.Bind != nil {
		err = p.Bind(&at, keys)
	}
	return at, err
}

// configure sets the configuration of an attachment, which is in configs. several reports whether the request may have
// several devices. The refusals are all mistakes.
func (p Policy) configure(at *state.Attachment, configs []resourceapi.DeviceAllocationConfiguration, several bool, numbers numbering) (keys DeviceKeys, wrong refusals) {
	params, wrong := p.parameters(configs)
	for _, key := range slices.Sorted(maps.Keys(params.values)) {
		arg := fmt.Sprintf("%s %.80s: ", key, params.values[key])
		supports := func(p *libcni.PluginConfig) bool { return p.Network.Capabilities[key] }
		switch {
		case !slices.Contains(params.allowedClaimArgs, key):
			wrong.add(key, arg+"the DeviceClass does not allow claims to set it", fmt.Sprintf("remove it, or add it to the DeviceClass: allowedClaimArgs: [%s]", key))
		case params.list != nil && !slices.ContainsFunc(params.list.Plugins, supports):
			wrong.add(key, fmt.Sprintf("%sno plugin of network %s supports it", arg, params.list.Name),
				fmt.Sprintf(`remove it, or give a plugin "capabilities": {%q: true} in the DeviceClass`, key))
		}
	}
	ifName := numbers.next(params.ifName)
	switch {
	case params.ifName == "" && wrong != nil: // it may be one of the mistakes
	case several && !strings.Contains(params.ifName, indexMark):
		wrong.add("ifName", fmt.Sprintf("ifName %s: the request may have several devices, and each becomes an interface", quote(params.ifName)),
			`write `+indexMark+` for the number of the interface, such as "net`+indexMark+`", or use ExactCount with count: 1`)
	case wrong == nil: // otherwise, decode may have refused it already
		wrong.keep(checkIfName(ifName))
	}
	keys, err := deviceKeys(params.device, params.list)
	if wrong == nil {
		wrong.keep(err)
	}
	if wrong != nil {
		return nil, wrong
	}
	at.IfName, at.Network, at.CNIVersion, at.List = ifName, params.list.Name, params.list.CNIVersion, params.list.Bytes
	at.Late, at.Capabilities, at.Driver = params.late, params.values, params.driver
	return keys, nil
}

func (p Policy) isOurs(c resourceapi.DeviceAllocationConfiguration) bool {
	return c.Opaque != nil && c.Opaque.Driver == p.Driver
}

// checkRequest refuses requests that cannot have a network, and reports whether a request may have several devices.
// The API requires drivers to refuse unknown allocation modes.
func checkRequest(requests []resourceapi.DeviceRequest, result resourceapi.DeviceRequestAllocationResult) (several bool, wrong *Refusal) {
	r := lookUp(requests, result.Request)
	switch {
	case r == nil:
		return false, refuse("", "the allocated request is missing from the claim's spec", "delete the claim and create it again")
	case ptr.Deref(r.AdminAccess, false) || ptr.Deref(result.AdminAccess, false):
		return false, refuse("adminAccess", "adminAccess: true: this gives access to devices in use, and an attached device cannot be attached again", "remove adminAccess")
	case !slices.Contains([]resourceapi.DeviceAllocationMode{"", resourceapi.DeviceAllocationModeExactCount, resourceapi.DeviceAllocationModeAll}, r.AllocationMode):
		return false, refuse("allocationMode", fmt.Sprintf("allocationMode %q is not known", r.AllocationMode), "use allocationMode: ExactCount or All, or update the driver")
	}
	return r.AllocationMode == resourceapi.DeviceAllocationModeAll || r.Count > 1, nil
}

// lookUp returns the request or subrequest of a claim's spec that an allocation refers to, or nil if it is missing.
// For a subrequest it returns only the mode and the count.
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

// Refusal is the error of a claim that breaks a rule of the driver.
type Refusal struct {
	Request string // request of the claim; "" = the whole claim
	At      string // path of the wrong key below the checked object, such as "config.plugins[0].type"; "" = the whole object
	Rule    string // the mistake and the rule
	Remedy  string // the correction, an imperative
}

func (r *Refusal) Error() string {
	if r.Request == "" {
		return fmt.Sprintf("%s; %s", r.Rule, r.Remedy)
	}
	return fmt.Sprintf("request %q: %s; %s", r.Request, r.Rule, r.Remedy)
}

func refuse(at, rule, remedy string) *Refusal { return &Refusal{At: at, Rule: rule, Remedy: remedy} }

// refusals are all mistakes in an object.
type refusals []*Refusal

func (r *refusals) add(at, rule, remedy string) { r.keep(refuse(at, rule, remedy)) }

// keep adds a refusal, unless it is nil.
func (r *refusals) keep(one *Refusal) {
	if one != nil {
		*r = append(*r, one)
	}
}

// quote quotes a part of the configuration for a message, and shortens it.
func quote(s string) string { return fmt.Sprintf("%.80q", s) }
