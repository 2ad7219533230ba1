// Package cniconfig turns an allocated ResourceClaim (resource.k8s.io/v1) into the
// networks that the driver attaches a pod to: which CNI configuration, for which
// interface, and whether its author may choose it. It only reads: a claim in, values
// or a [*Refusal] out.
//
// The parameters are those of the CNI DRA driver's Device Configuration API, {ifName,
// config}. They come from the DeviceClass, from the claim, or both: the configuration
// from one of them, the interface name from either, and the claim's goes first.
//
// Further keys are extensions of ours: a class may say attach: Late, device (where the
// allocated device goes), driver (what it is bound to), and claimMaySet with the capability
// arguments (ips, mac, bandwidth, portMappings, infinibandGUID) that a claim may give under
// these names.
//
// A CNI configuration is run by root on the node. That of a DeviceClass is its
// administrator's; that of a claim is anybody's who may make pods, and is taken only
// if each plugin that it may run is on the node's list, [Policy].AllowClaimTypes.
// Which those are only a plugin's source could tell: main plugins run ipam.type, some
// run delegates, delegate, or a configuration of their own shape. So each "type" at
// any depth counts, plugin or not: what is wrongly taken for a plugin is
// refused and can be put on the list, what is wrongly taken for data would be run. A
// key that only other letter case tells from "type" is refused, for Go's encoding/json
// reads it as "type".
package cniconfig
