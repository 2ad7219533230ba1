package cluster

import "devinfo-cni.io/pkg/ctl/finding"

const noInfo, creating, pending = "network-status-has-no-device-info", "a-pod-stays-in-containercreating", "a-pod-with-a-claim-stays-pending"

// rules are the problems that kubectl devinfo shows.
var rules = finding.Table{
	finding.Row("unscheduled", finding.Error, "the pod is not scheduled: {message}", "", pending, ""),
	finding.Row("no-status", finding.Error, "the pod has no network-status", "its sandbox does not exist yet, or Multus does not run on its node", creating, ""),
	finding.Row("bad-status", finding.Error, "annotation {annotation}: {error}", "recreate the pod, so that Multus writes it again", noInfo, ""),
	finding.Row("bad-info", finding.Error, "device-info: {error}", "correct or update the plugin of the network that wrote it", noInfo, ""),
	finding.Row("no-network", finding.Error, "network {network} does not exist", "create this NetworkAttachmentDefinition, or correct the annotation", creating, ""),
	finding.Row("network", finding.Error, "network {network}: {finding}", "", noInfo, ""),
	finding.Row("no-record", finding.Warning, "node {node} has no record of a device for it", "the container runtime's log there has the warnings of the plugin devinfo", noInfo, ""),
	finding.Row("state", finding.Error, "node {node}: {state}: {why}", "kubectl devinfo doctor {node} has the remedy", "the-device-information-is-no-longer-true", ""),
	finding.Row("claim-absent", finding.Error, "claim {claim} does not exist", "create it", pending, ""),
	finding.Row("claim-unmade", finding.Error, "claim {claim} of the pod has not been made", "check that ResourceClaimTemplate {template} exists", pending, ""),
	finding.Row("claim-unallocated", finding.Error, "claim {claim} is not allocated", "{why}", pending, ""),
	finding.Row("claim-unprepared", finding.Error, "claim {claim} is allocated, but cni-dra-driver has not prepared it", "kubectl describe pod shows its error; if there is none, check that the driver runs on the node", creating, ""),
	finding.Row("claim-not-ready", finding.Error, "{reason}: {message}", "", creating, ""),
	finding.Row("claim-reserved", finding.Warning, "claim {claim} is reserved for {number} pods, but only one of them at a time gets its network", "use a ResourceClaimTemplate", creating, ""),
}

// Problem returns the text and the remedy of a rule, with values in them: see [finding.Table.Of].
func Problem(rule string, values ...string) string { return rules.Of(rule, values...).String() }
