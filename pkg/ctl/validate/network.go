package validate

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/pkg/core/config"
)

const resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName" // annotation of a NetworkAttachmentDefinition

// network is a CNI configuration, or a list of them, in a document.
type network struct {
	Checker
	*Document
	path     string                     // in the document
	object   map[string]json.RawMessage // the configuration
	name     json.RawMessage            // name of the list or the NetworkAttachmentDefinition; nil = none
	version  string                     // CNI version that the runtime passes to the plugins; "" = 0.1.0
	multus   bool                       // the network is in a NetworkAttachmentDefinition
	resource bool                       // the definition has a resourceName, so Multus passes a deviceID
	dra      bool                       // the network is in a DeviceClass or a claim
	primary  bool                       // Multus runs the network as a pod's default network, without a deviceID or a path
	operator bool                       // the operator writes the first plugin of the list, and spec.metaPlugins has the others
}

func (c Checker) network(d *Document) {
	n := network{Checker: c, Document: d}
	if json.Unmarshal(d.data, &n.object) != nil {
		d.wrong("", d.data, "must be a CNI configuration, an object")
		return
	}
	delegates, path := multusDelegates(n.object)
	switch kind := d.object.Kind; {
	case kind == definition && !n.definition(), makers[kind] != "" && !n.metaPlugins(makers[kind]): // there is no configuration
	case delegates != nil:
		checkDelegates(n, delegates, path)
	default:
		n.check()
	}
}

// definition reads the configuration in a NetworkAttachmentDefinition, and reports whether there
// is one.
func (n *network) definition() bool {
	var nad struct {
		object
		Spec struct{ Config json.RawMessage }
	}
	if err := json.Unmarshal(n.data, &nad); err != nil {
		n.wrong("", nil, "must be a %s, {metadata: {name: NAME}, spec: {config: ...}}: %v", definition, err)
		return false
	}
	n.path, n.name, n.multus = "spec.config", config.Encode(nad.Metadata.Name), true
	n.resource = nad.Metadata.Annotations[resourceAnnotation] != ""
	checkAnnotations(n.Document, nad.Metadata.Annotations)
	inner, raw := "", nad.Spec.Config
	if raw != nil && json.Unmarshal(raw, &inner) != nil {
		n.wrong(n.path, raw, "must be a string that holds JSON")
		return false
	}
	if inner == "" {
		n.warn(n.path, raw, "contains no configuration; the runtime reads it from a file on the node: validate that file")
		return false
	}
	if !n.readJSON(n.path, []byte(inner)) {
		return false
	}
	n.object = nil
	if json.Unmarshal([]byte(inner), &n.object) != nil || n.object == nil {
		n.wrong(n.path, []byte(inner), "must be a CNI configuration, an object")
		return false
	}
	return true
}

// ListKeys are the keys of a list of plugins (CNI SPEC.md, section 1).
var ListKeys = []string{"cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "plugins"}

func (n *network) check() {
	raw, isList := n.object["plugins"]
	plugins := []map[string]json.RawMessage{n.object}
	if isList {
		n.listKeys()
		plugins = nil
		if json.Unmarshal(raw, &plugins) != nil {
			n.wrong(n.path+".plugins", raw, "must be a list of plugin configurations")
			return
		}
	}
	isOurs := func(p map[string]json.RawMessage) bool { return decoded(p).Type == Plugin }
	if !n.dra && !slices.ContainsFunc(plugins, isOurs) { // in a DeviceClass or a claim other plugins are checked too
		n.Skipped = noPlugin
	}
	if !isList && !isOurs(n.object) {
		return
	}
	if name := n.object["name"]; name != nil && (!n.multus || string(name) != `""`) { // Multus replaces an empty name
		n.name = name
	} else if !isList && !n.multus {
		n.name = config.Encode(decoded(n.object).Name)
	}
	n.identity(n.versions(isList))
	for i, object := range plugins {
		path := n.path
		if isList {
			path = n.element(i)
			n.supported(path, object)
		}
		if isOurs(object) {
			p := plugin{network: n, path: path, object: maps.Clone(object), after: i > 0}
			p.maker, p.mover, p.binder = order(plugins[:i], plugins[i+1:])
			if slices.ContainsFunc(plugins[:i], isOurs) {
				n.find("twice", p.path, object["type"])
			}
			p.check()
		}
		n.decodable(path, object)
	}
	n.parsable(isList)
}

// listKeys warns of keys that a list does not have. Runtimes ignore there what a plugin may have.
func (n *network) listKeys() {
	rest := map[string]json.RawMessage{}
	for _, key := range slices.Sorted(maps.Keys(n.object)) {
		cfg, err := config.Parse(config.Encode(map[string]any{"type": Plugin, "name": "n", "cniVersion": version.Current(), key: n.object[key]}))
		if slices.Contains(ListKeys, key) || err != nil || len(cfg.Unknown) > 0 {
			rest[key] = n.object[key]
			continue
		}
		n.find("beside-plugins", n.path+"."+key, n.object[key])
	}
	n.unknown(n.path, rest, ListKeys, func(a, b string) bool { return a == b })
}

// identity checks name and cniVersion, which the runtime copies into the configuration of each plugin. readable reports
// whether it can read the version. In a DeviceClass or a claim package cniconfig does that.
func (n *network) identity(readable bool) {
	if n.dra {
		return
	}
	if err := utils.ValidateNetworkName(text(n.name)); err != nil {
		n.wrong(n.path+".name", n.name, `must be the network's name: letters, digits, "_", "." and "-", a letter or digit first`)
	} else if why := tooLong(text(n.name)); why != "" {
		n.wrong(n.path+".name", n.name, "ADD refuses it: %s", why)
	}
	own := n.object["cniVersion"]
	if known := version.All.SupportedVersions(); !readable || n.version != "" && !slices.Contains(known, n.version) {
		n.wrong(n.path+".cniVersion", own, "must be one of %s", strings.Join(known, ", "))
	} else if n.version == "" {
		n.warn(n.path+".cniVersion", own, "is 0.1.0 where it is missing, which has neither chains (0.3.0) nor CHECK (0.4.0)")
	}
}

// supported reports a plugin of the node that does not support the CNI version of the list. It would refuse ADD.
func (n *network) supported(path string, object map[string]json.RawMessage) {
	if n.Versions == nil || n.version == "" {
		return
	}
	kind := decoded(object).Type
	if known := n.Versions(kind); len(known) > 0 && !slices.Contains(known, n.version) {
		n.find("version", path+".type", object["type"], "plugin", kind, "known", strings.Join(known, ", "), "version", n.version)
	}
}

// A role is the effect of a plugin on the interface of a pod.
type role int

const (
	unknown role = iota
	maker        // makes the interface, or moves it into the pod
	meta         // works on an interface that another plugin has made
	mover        // a meta plugin that moves the RDMA device into the pod
	binder       // makes one interface of several devices
)

// roles are the roles of well-known plugins, by the type in a configuration.
var roles = map[string]role{
	// github.com/containernetworking/plugins: plugins/main, plugins/meta
	"bridge": maker, "dummy": maker, "host-device": maker, "ipvlan": maker, "loopback": maker, "macvlan": maker, "ptp": maker, "tap": maker, "vlan": maker,
	"bandwidth": meta, "firewall": meta, "portmap": meta, "sbr": meta, "tuning": meta, "vrf": meta,
	// github.com/k8snetworkplumbingwg: READMEs of sriov-cni, ib-sriov-cni, ovs-cni, bond-cni, accelerated-bridge-cni, rdma-cni, route-override-cni
	"sriov": maker, "ib-sriov": maker, "ib-sriov-cni": maker, "ovs": maker, "bond": binder, "accelerated-bridge": maker, "rdma": mover,
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

// order returns the first plugin after devinfo that makes the interface, and the last plugins before it that move the RDMA
// device and that bind several devices; "" = there is none. An unknown plugin after devinfo counts as a maker only if no plugin before devinfo can be it.
func order(before, after []map[string]json.RawMessage) (makes, moves, binds string) {
	made := false
	for _, p := range before {
		kind := decoded(p).Type
		made = made || kind != Plugin && roles[kind] <= maker || roles[kind] == binder
		switch roles[kind] {
		case mover:
			moves = kind
		case binder:
			binds = kind
		}
	}
	at := slices.IndexFunc(after, func(p map[string]json.RawMessage) bool {
		kind := decoded(p).Type
		return roles[kind] == maker || roles[kind] == binder || roles[kind] == unknown && kind != "" && kind != Plugin && !made
	})
	if at >= 0 {
		makes = decoded(after[at]).Type
	}
	return makes, moves, binds
}
