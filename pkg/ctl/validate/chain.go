package validate

import (
	"encoding/json"
	"slices"
)

// A role is the effect of a plugin on the interface of a pod.
type role int

const (
	unknown role = iota
	maker        // makes the interface, or moves it into the pod
	meta         // works on an interface that another plugin has made
	mover        // a meta plugin that moves the RDMA device into the pod
)

// roles are the roles of well-known plugins, by the type in a configuration.
var roles = map[string]role{
	// github.com/containernetworking/plugins: plugins/main, plugins/meta
	"bridge": maker, "dummy": maker, "host-device": maker, "ipvlan": maker, "loopback": maker, "macvlan": maker, "ptp": maker, "tap": maker, "vlan": maker,
	"bandwidth": meta, "firewall": meta, "portmap": meta, "sbr": meta, "tuning": meta, "vrf": meta,
	// github.com/k8snetworkplumbingwg: READMEs of sriov-cni, ib-sriov-cni, ovs-cni, bond-cni, accelerated-bridge-cni, rdma-cni, route-override-cni
	"sriov": maker, "ib-sriov": maker, "ib-sriov-cni": maker, "ovs": maker, "bond": maker, "accelerated-bridge": maker, "rdma": mover,
	"route-override": meta, "ovs-mirror-producer": meta, "ovs-mirror-consumer": meta,
	// READMEs of github.com/Mellanox/ipoib-cni, github.com/intel/userspace-cni-network-plugin, github.com/flannel-io/cni-plugin
	"ipoib": maker, "userspace": maker, "flannel": maker,
	// configurations that the installers of Calico, Antrea, Kube-OVN, OVN-Kubernetes, Azure CNI and Terway write
	"calico": maker, "antrea": maker, "kube-ovn": maker, "ovn-k8s-cni-overlay": maker, "azure-vnet": maker, "terway": maker,
	// github.com/aws/amazon-vpc-cni-k8s: misc/10-aws.conflist
	"aws-cni": maker, "egress-cni": meta,
	// docs.cilium.io: CNI chaining. On its own it makes the interface, but then no plugin of the chain does.
	"cilium-cni": meta,
	// github.com/spidernet-io/spiderpool: docs/reference/plugin-coordinator.md, plugin-ifacer.md (makes interfaces of the host); github.com/spidernet-io/cni-plugins
	"coordinator": meta, "ifacer": meta, "veth": meta, "router": meta,
	// service meshes redirect traffic of eth0: cni/ of github.com/istio/istio, github.com/linkerd/linkerd2-proxy-init, app/cni of github.com/kumahq/kuma
	"istio-cni": meta, "linkerd-cni": meta, "kuma-cni": meta,
	// READMEs of github.com/containers/dnsname, github.com/awslabs/tc-redirect-tap
	"dnsname": meta, "tc-redirect-tap": meta,
}

// order returns the first plugin after devinfo that makes the interface, and the plugin before it that moves the RDMA device;
// "" = there is none. An unknown plugin after devinfo counts as a maker only if no plugin before devinfo can be it.
func order(before, after []map[string]json.RawMessage) (makes, moves string) {
	made := false
	for _, p := range before {
		kind := decoded(p).Type
		made = made || kind != Plugin && roles[kind] <= maker
		if roles[kind] == mover {
			moves = kind
		}
	}
	at := slices.IndexFunc(after, func(p map[string]json.RawMessage) bool {
		kind := decoded(p).Type
		return roles[kind] == maker || roles[kind] == unknown && kind != "" && kind != Plugin && !made
	})
	if at >= 0 {
		makes = decoded(after[at]).Type
	}
	return makes, moves
}
