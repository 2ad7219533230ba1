package cluster

import "devinfo-cni.io/pkg/ctl/finding"

const noInfo, creating, pending = "network-status-has-no-device-info", "a-pod-stays-in-containercreating", "a-pod-with-a-claim-stays-pending"

// rules are the problems that kubectl devinfo shows.
var rules = finding.Table{
	finding.Row("unscheduled", finding.Error, "the condition PodScheduled", "the pod is not scheduled: {message}", "", pending, ""),
	finding.Row("no-status", finding.Error, "network-status", "the pod has no network-status", "its sandbox does not exist yet, or Multus does not run on its node", creating, ""),
	finding.Row("bad-status", finding.Error, "network-status", "annotation {annotation}: {error}", "recreate the pod, so that Multus writes it again", noInfo, ""),
	finding.Row("bad-info", finding.Error, "network-status", "{error}", "correct or update the plugin of the network that wrote it", noInfo, ""),
	finding.Row("no-network", finding.Error, "the pod's networks", "network {network} does not exist", "create this NetworkAttachmentDefinition, or correct the annotation", creating, ""),
	finding.Row("network", finding.Error, "the network, as devinfoctl validate reads it", "network {network}: {finding}", "", noInfo, ""),
	finding.Row("no-record", finding.Warning, "the records of the node", "node {node} has no record of a device for it", "the container runtime's log there has the warnings of the plugin devinfo", noInfo, ""),
	finding.Row("state", finding.Error, "the records of the node", "node {node}: {state}: {why}", "kubectl devinfo doctor {node} has the remedy", "the-device-information-is-no-longer-true", ""),
	finding.Row("claim-absent", finding.Error, "the pod's claims", "claim {claim} does not exist", "create it", pending, ""),
	finding.Row("claim-unmade", finding.Error, "the pod's claims", "claim {claim} of the pod has not been made", "check that ResourceClaimTemplate {template} exists", pending, ""),
	finding.Row("claim-unallocated", finding.Error, "the status of the claim, and the condition PodScheduled", "claim {claim} is not allocated", "{why}", pending, ""),
	finding.Row("claim-unprepared", finding.Error, "the status of the claim", "claim {claim} is allocated, but cni-dra-driver has not prepared it", "kubectl describe pod shows its error; if there is none, check that the driver runs on the node", creating, ""),
	finding.Row("claim-not-ready", finding.Error, "the condition Ready of the claim's device", "{reason}: {message}", "", creating, ""),
	finding.Row("claim-reserved", finding.Warning, "the pods that the claim is reserved for", "claim {claim} is reserved for {number} pods, but only one of them at a time gets its network", "use a ResourceClaimTemplate", creating, ""),
}

// Problem returns the text and the remedy of a rule, with values in them: see [finding.Table.Of].
func Problem(rule string, values ...string) string { return rules.Of(rule, values...).String() }
