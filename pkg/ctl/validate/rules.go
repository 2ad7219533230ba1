package validate

import (
	"encoding/json"

	"devinfo-cni.io/pkg/ctl/finding"
)

const (
	noInfo   = "network-status-has-no-device-info"
	creating = "a-pod-stays-in-containercreating"
	onlyPath = "Multus passes a path only for a network with a device"
	annotate = `set "auto", or give the ` + definition + " the annotation " + resourceAnnotation
	declare  = `"capabilities": {"` + fileCapability + `": true}`
)

// Rules are what validate finds in a configuration whose values are those of its format. For all other
// values the rules "format" and "format-doubt" stand: their text is of the library or the plugin that refuses the value.
var Rules = finding.Table{
	finding.Row("format", finding.Error, "the document", "{rule}", "", creating, ""),
	finding.Row("format-doubt", finding.Warning, "the document", "{rule}", "", creating, ""),
	finding.Row("unknown-key", finding.Warning, "the keys of the format", "the key is not known{nearest}", "", creating, "the key is not known"),
	finding.Row("before-maker", finding.Error, "the order of the plugins", "runs before {plugin}, which makes the interface, so ADD fails", "put it after that plugin", noInfo, "runs before"),
	finding.Row("no-pciid", finding.Warning, "the order of the plugins", "runs before {plugin}, which makes the interface", "put it after that plugin, or the result has no pciID", noInfo, "runs before"),
	finding.Row("after-mover", finding.Warning, "the order of the plugins", "runs after {plugin}, which in the RDMA mode exclusive has moved the RDMA device into the pod, where devinfo may not find it", "put it before {plugin}", noInfo, "runs after"),
	finding.Row("after-binder", finding.Warning, "the order of the plugins", "runs after {plugin}, whose interface has several devices, so ADD finds none", `put devinfo into the networks of these devices, or name one in "deviceID"`, noInfo, "runs after"),
	finding.Row("twice", finding.Warning, "the order of the plugins", "is in the chain twice, and the second removes the file of the first", "remove one of them", noInfo, ""),
	finding.Row("no-source", finding.Error, "all that names a device", "has no source of a device, so ADD fails", `chain it after the plugin that makes the interface, add "delegates", "deviceID" or "deviceInfo", or {remedy}`, creating, ""),
	finding.Row("no-source-of-claim", finding.Warning, "all that names a device", "has a device only if the claim's device sets deviceID", `put it after the plugin that makes the interface, or add "delegates" or "deviceInfo"`, creating, ""),
	finding.Row("default-network", finding.Error, "the capabilities of the plugin, and the network's resourceName", "Multus passes no path for a pod's default network", `set "auto"`, noInfo, "Multus passes no path for"),
	finding.Row("no-capability", finding.Error, "the capabilities of the plugin, and the network's resourceName", "no runtime passes a path, and no file is written (Device Information Specification, section 5.1)", "declare "+declare+`, or set "deviceInfoFile": "auto"`, noInfo, ""),
	finding.Row("no-resource-nor-capability", finding.Error, "the capabilities of the plugin, and the network's resourceName", onlyPath, annotate+" and this plugin "+declare, noInfo, ""),
	finding.Row("no-resource", finding.Warning, "the capabilities of the plugin, and the network's resourceName", onlyPath, annotate, noInfo, ""),
	finding.Row("no-resource-strict", finding.Error, "the capabilities of the plugin, and the network's resourceName", onlyPath, annotate, noInfo, ""),
	finding.Row("annotation-key", finding.Error, "the annotations of the network", "Multus does not read it", "the key is "+resourceAnnotation, noInfo, ""),
	finding.Row("resource-domain", finding.Error, "the annotations of the network", "has no domain, so no container can request it, and Multus finds no device", "write DOMAIN/NAME, as the device plugin advertises it", noInfo, ""),
	finding.Row("networks", finding.Error, "the pod's annotation of networks", "Multus cannot read the pod's networks", `write NAME@INTERFACE, or a list in JSON: [{"name": "NAME"}]`, creating, ""),
	finding.Row("networks-above", finding.Error, "the annotations of the workload", "Multus reads it on pods only", "move it to {template}.metadata.annotations", noInfo, ""),
	finding.Row("not-requested", finding.Warning, "what containers request", "no container requests {resource}, whose device network {network} takes", `add {resource}: "1" to the requests and limits of a container{unless}`, noInfo, "no container requests"),
	finding.Row("too-few-requested", finding.Warning, "what containers request", "the containers request fewer {resource} than the pod has attachments that take one, so that network {network} gets no device", "request one for each, in a container's requests and limits{unless}", "vf-pci-addr-is-required-failed-to-find-netdev", ""),
	finding.Row("resource-replaces", finding.Warning, "the capabilities of the plugin, and the network's resourceName", "has no effect", "Multus replaces it by the device that the pod got of the resource", noInfo, ""),
	finding.Row("two-devices", finding.Error, "the keys that name a device", "must be {device}, the device that another key names", "ADD refuses two", creating, ""),
	finding.Row("beside-plugins", finding.Warning, "the keys of the list", `has no effect beside "plugins"`, "move it into the configuration of the plugin", noInfo, ""),
	finding.Row("version", finding.Error, "VERSION of the plugins", "the {plugin} of this node knows CNI {known} only, not {version}", "set one of those as cniVersion, or update the plugin", creating, ""),
	finding.Row("delegate-missing", finding.Error, "delegates and the directories of CNI plugins", "ADD refuses it: {why}", "", creating, ""),
	finding.Row("delegate-mover", finding.Warning, "delegates", "moves the RDMA device into the pod in the RDMA mode exclusive, where devinfo may not find it", "chain {plugin} after devinfo", noInfo, ""),
	finding.Row("portmap", finding.Warning, "delegates", "portmap does nothing if the runtime passes no value", `declare {"portMappings": true}`, noInfo, ""),
	finding.Row("capability-deeper", finding.Warning, "delegates", "a runtime looks no deeper, and passes no value", "declare it in {at} too", noInfo, ""),
	finding.Row("capability-idle", finding.Warning, "delegates", "has no effect", "no delegate declares it", noInfo, ""),
	finding.Row("claim", finding.Error, "the claim, its classes and their parameters", "{rule}; {remedy}", "", creating, ""),
	finding.Row("claim-config", finding.Warning, "the claim", "only nodes that run cni-dra-driver with --allow-claim-config take a config from a claim", "", creating, ""),
}

// find adds a finding of a rule. values are names in its text and remedy, each with its value.
func (d *Document) find(rule, path string, value json.RawMessage, values ...string) {
	r := Rules.Of(rule, values...)
	d.add(Finding{Path: path, Value: show(value), Rule: r.String(), Warning: r.Level == finding.Warning})
}
