package cluster

import "devinfo-cni.io/pkg/ctl/finding"

// Rules returns the table of the problems that kubectl devinfo shows.
func Rules() (all []finding.Rule) {
	type row finding.Rule // without the names of its fields
	const noInfo, creating, pending = "network-status-has-no-device-info", "a-pod-stays-in-containercreating", "a-pod-with-a-claim-stays-pending"
	at := func(section string) finding.Symptom { return finding.Symptom{Section: section} }
	for _, r := range []row{
		{"unscheduled", "pod", finding.Error, "the condition PodScheduled", "the pod is not scheduled: {message}", "", at(pending)},
		{"no-status", "pod", finding.Error, "network-status", "the pod has no network-status", "its sandbox does not exist yet, or Multus does not run on its node", at(creating)},
		{"bad-status", "list", finding.Error, "network-status", "annotation {annotation}: {error}", "recreate the pod, so that Multus writes it again", at(noInfo)},
		{"bad-info", "list", finding.Error, "network-status", "device-info: {error}", "correct or update the plugin of the network that wrote it", at(noInfo)},
		{"no-network", "pod", finding.Error, "the pod's networks", "network {network} does not exist", "create this NetworkAttachmentDefinition, or correct the annotation", at(creating)},
		{"network", "pod", finding.Error, "the network, as devinfoctl validate reads it", "network {network}: {finding}", "", at(noInfo)},
		{"no-record", "pod", finding.Warning, "the records of the node", "node {node} has no record of a device for it", "the container runtime's log there has the warnings of the plugin devinfo", at(noInfo)},
		{"state", "pod", finding.Error, "the records of the node", "node {node}: {state}: {why}", "kubectl devinfo doctor {node} has the remedy", at("the-device-information-is-no-longer-true")},
		{"claim-absent", "pod", finding.Error, "the pod's claims", "claim {claim} does not exist", "create it", at(pending)},
		{"claim-unmade", "pod", finding.Error, "the pod's claims", "claim {claim} of the pod has not been made", "check that ResourceClaimTemplate {template} exists", at(pending)},
		{"claim-unallocated", "pod", finding.Error, "the status of the claim, and the condition PodScheduled", "claim {claim} is not allocated", "{why}", at(pending)},
		{"claim-unprepared", "pod", finding.Error, "the status of the claim", "claim {claim} is allocated, but cni-dra-driver has not prepared it",
			"kubectl describe pod shows its error; if there is none, check that the driver runs on the node", at(creating)},
		{"claim-not-ready", "list", finding.Error, "the condition Ready of the claim's device", "{reason}: {message}", "", at(creating)},
		{"claim-reserved", "list", finding.Warning, "the pods that the claim is reserved for", "claim {claim} is reserved for {number} pods, but only one of them at a time gets its network",
			"use a ResourceClaimTemplate", at(creating)},
	} {
		all = append(all, finding.Rule(r))
	}
	return all
}

// Problem returns the text and the remedy of a rule, with values in them: see [finding.Of].
func Problem(rule string, values ...string) string {
	return finding.Of(Rules(), rule, values...).String()
}
