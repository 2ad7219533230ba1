package validate

import (
	"encoding/json"

	"devinfo-cni.io/pkg/ctl/finding"
)

// Rules returns the table of what validate finds in a configuration whose values are those of its format. For all other
// values the rules "format" and "format-doubt" stand: their text is of the library or the plugin that refuses the value.
func Rules() []finding.Rule {
	row := finding.Row
	const (
		e, w     = finding.Error, finding.Warning
		chain    = "the order of the plugins"
		asked    = "the capabilities of the plugin, and the network's resourceName"
		children = "delegates"
		noInfo   = "network-status-has-no-device-info"
		creating = "a-pod-stays-in-containercreating"
		onlyPath = "Multus passes a path only for a network with a device"
		annotate = `set "auto", or give the ` + definition + " the annotation " + resourceAnnotation
		declare  = `"capabilities": {"` + fileCapability + `": true}`
	)
	return []finding.Rule{
		row("format", "validate", e, "the document", "{rule}", "", creating, ""),
		row("format-doubt", "validate", w, "the document", "{rule}", "", creating, ""),
		row("unknown-key", "validate", w, "the keys of the format", `the key is not known; the nearest known one is "{nearest}"`, "", creating, "the key is not known"),
		row("before-maker", "validate", e, chain, "runs before {plugin}, which makes the interface, so ADD fails", "put it after that plugin", noInfo, "runs before"),
		row("no-pciid", "validate", w, chain, "runs before {plugin}, which makes the interface", "put it after that plugin, or the result has no pciID", noInfo, "runs before"),
		row("after-mover", "validate", w, chain, "runs after {plugin}, which in the RDMA mode exclusive has moved the RDMA device into the pod, where devinfo may not find it", "put it before {plugin}", noInfo, "runs after"),
		row("after-binder", "validate", w, chain, "runs after {plugin}, whose interface has several devices, so ADD finds none", `put devinfo into the networks of these devices, or name one in "deviceID"`, noInfo, "runs after"),
		row("twice", "validate", w, chain, "is in the chain twice, and the second removes the file of the first", "remove one of them", noInfo, ""),
		row("no-source", "validate", e, "all that names a device", "has no source of a device, so ADD fails", `chain it after the plugin that makes the interface, add "delegates", "deviceID" or "deviceInfo", or {remedy}`, creating, ""),
		row("no-source-of-claim", "validate", w, "all that names a device", "has a device only if the claim's device sets deviceID", `put it after the plugin that makes the interface, or add "delegates" or "deviceInfo"`, creating, ""),
		row("default-network", "validate", e, asked, "Multus passes no path for a pod's default network", `set "auto"`, noInfo, "Multus passes no path for"),
		row("no-capability", "validate", e, asked, "no runtime passes a path, and no file is written (Device Information Specification, section 5.1)", "declare "+declare+`, or set "deviceInfoFile": "auto"`, noInfo, ""),
		row("no-resource-nor-capability", "validate", e, asked, onlyPath, annotate+" and this plugin "+declare, noInfo, ""),
		row("no-resource", "validate", w, asked, onlyPath, annotate, noInfo, ""),
		row("no-resource-strict", "validate", e, asked, onlyPath, annotate, noInfo, ""),
		row("annotation-key", "validate", e, "the annotations of the network", "Multus does not read it", "the key is "+resourceAnnotation, noInfo, ""),
		row("resource-domain", "validate", e, "the annotations of the network", "has no domain, so no container can request it, and Multus finds no device", "write DOMAIN/NAME, as the device plugin advertises it", noInfo, ""),
		row("networks", "validate", e, "the pod's annotation of networks", "Multus cannot read the pod's networks", `write NAME@INTERFACE, or a list in JSON: [{"name": "NAME"}]`, creating, ""),
		row("not-requested", "validate", w, "what containers request", "no container requests {resource}, whose device network {network} takes", `add {resource}: "1" to the requests and limits of a container{unless}`, noInfo, "no container requests"),
		row("resource-replaces", "validate", w, asked, "has no effect", "Multus replaces it by the device that the pod got of the resource", noInfo, ""),
		row("two-devices", "validate", e, "the keys that name a device", "must be {device}, the device that another key names", "ADD refuses two", creating, ""),
		row("beside-plugins", "validate", w, "the keys of the list", `has no effect beside "plugins"`, "move it into the configuration of the plugin", noInfo, ""),
		row("version", "validate", e, "VERSION of the plugins", "the {plugin} of this node knows CNI {known} only, not {version}", "set one of those as cniVersion, or update the plugin", creating, ""),
		row("delegate-missing", "validate", e, children+" and the directories of CNI plugins", "ADD refuses it: {why}", "", creating, ""),
		row("delegate-mover", "validate", w, children, "moves the RDMA device into the pod in the RDMA mode exclusive, where devinfo may not find it", "chain {plugin} after devinfo", noInfo, ""),
		row("portmap", "validate", w, children, "portmap does nothing if the runtime passes no value", `declare {"portMappings": true}`, noInfo, ""),
		row("capability-deeper", "validate", w, children, "a runtime looks no deeper, and passes no value", "declare it in {at} too", noInfo, ""),
		row("capability-idle", "validate", w, children, "has no effect", "no delegate declares it", noInfo, ""),
		row("claim", "validate", e, "the claim, its classes and their parameters", "{rule}; {remedy}", "", creating, ""),
		row("claim-config", "validate", w, "the claim", "only nodes that run cni-dra-driver with --allow-claim-config take a config from a claim", "", creating, ""),
	}
}

// find adds a finding of a rule. values are names in its text and remedy, each with its value.
func (d *Document) find(rule, path string, value json.RawMessage, values ...string) {
	r := finding.Of(Rules(), rule, values...)
	d.add(Finding{Path: path, Value: show(value), Rule: r.String(), Warning: r.Level == finding.Warning})
}
