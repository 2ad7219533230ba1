package doctor

import (
	"slices"
	"sync"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/finding"
)

// The rows of the table of findings, see package finding.
type (
	Rule    = finding.Rule
	Symptom = finding.Symptom
)

// inDoctor is the section of findings that no other section explains.
const inDoctor = "doctor-reports-a-problem"

const (
	installPlugin = "run devinfoctl install --cni-bin-dir DIR, or let devinfo-agent install it"
	enableNRI     = "enable NRI: containerd has it on from 2.0, CRI-O from 1.30; in containerd 1.7 set disable = false in plugins.\"io.containerd.nri.v1.nri\""
)

// DriverAway is the text of the rule "driver-away-offer".
const DriverAway = "cni-dra-driver does not run on this node, so it offers no devices"

// CorrectRules is the remedy for invalid rules.
const CorrectRules = "correct the rules, and restart cni-dra-driver, which reads them when it starts"

// A row is a Rule that is written without the names of its fields.
type row Rule

// Rules returns the table of findings.
func Rules() (all []Rule) {
	for _, r := range slices.Concat(rulesOfPods(), rulesOfNode()) {
		all = append(all, Rule(r))
	}
	return all
}

func rulesOfNode() []row {
	var none Symptom
	here := func(says string) Symptom { return Symptom{Section: inDoctor, Says: says} }
	return []row{
		{"unusable", "usable", Warning, "the device in /sys, and its interface in the kernel", "{device}: no pod has it, but the next one could not use it: {found}{last} (rule {rule})", "{remedy}", here("the next one could not use it")},
		{"unusable-by-some", "usable", Warning, "the settings of the VF on its PF, GUIDs, altnames", "{device}: no pod has it, but the next one may not be able to use it: {found}{last} (rule {rule})",
			"unless the network of the next pod sets it in ADD, {remedy}", here("the next one may not be able to use it")},
		{"lost-interface", "usable", Warning, "the interfaces in all network namespaces of processes and mounts", "{device}: no pod has it, and its interface is neither on the host nor in a network namespace that can be named{last} (rule {rule})", "{remedy}",
			here("neither on the host nor in a network namespace that can be named")},
		{"interface-elsewhere", "usable", Info, "the interfaces in all network namespaces", "{device}: no pod is known to have it, but {found}{last}", "{remedy}", none},
		{"interface-unseen", "usable", Unknown, "the interfaces in all network namespaces", "{device}: no pod is known to have it, and its interface is not on the host", "run devinfoctl doctor as root on the node itself, which sees all network namespaces", none},
		{"differs", "leftovers", Info, "IFLA_VF_INFO of the PF", "{device}: no pod has it, and it has {what}, unlike the free VFs beside it{last}", "unless it is wanted, ip link set {pf} vf {index} {undo}", none},
		{"settings-unseen", "leftovers", Unknown, "IFLA_VF_INFO of the PFs", "the PFs do not report the settings of their VFs", "run devinfoctl doctor in the host's network namespace", none},
		{"same-mac", "addresses", Error, "IFLA_VF_INFO of the PFs", "{devices} have the same MAC, {mac}", "give one VF its own MAC: ip link set {pf} vf {index} mac MAC", here("have the same MAC")},
		{"card", "cards", Info, "PCI IDs and drivers", "how devinfo was tried on {text}", "{remedy}", none},
		{"plugin-missing", "plugin", Error, "the directories of CNI plugins", "the devinfo plugin is not in {dirs}", installPlugin, Symptom{Section: "a-pod-stays-in-terminating", Says: "the devinfo plugin is not in"}},
		{"plugin-broken", "plugin", Error, "VERSION of the plugin", "{path}: the devinfo plugin does not run: {why}", installPlugin, here("the devinfo plugin does not run")},
		{"plugin-other", "plugin", Warning, "VERSION of the plugin", "{path} is {build}, and this program is {own}", installPlugin + ", so that both have the same version", here("and this program is")},
		{"settings", "settings", Error, "the node settings", "{why}", "correct the file, because every ADD fails", Symptom{Section: inDoctor}},
		{"conf-missing", "networks", Unknown, "the directory of CNI configurations", "{path}: no such file or directory", NameConfDir, none},
		{"no-network", "networks", Info, "the directory of CNI configurations", "no network configuration on this node contains devinfo", "check the networks in the API: kubectl get net-attach-def -A -o yaml | devinfoctl validate -", none},
		{"network", "networks", Error, "the CNI configurations with devinfo", "{path}: {finding}", "correct the file, then run devinfoctl validate {path}", Symptom{Section: inDoctor}},
		{"network-doubt", "networks", Warning, "the CNI configurations with devinfo", "{path}: {finding}", "correct the file, then run devinfoctl validate {path}", Symptom{Section: inDoctor}},
		{"directory", "directories", Warning, "the directories of CNI and CDI", "{path}: cannot be used: {why}", "create it, or name another directory {by}; in a container, mount it", here("cannot be used")},
		{"read-only", "directories", Error, "the file systems of the directories", "{path}: is on a read-only file system, so every ADD fails",
			"mount it read-write, or set stateDir or deviceInfoDir in the node settings to a directory on another file system; in a container, mount that", here("is on a read-only file system")},
		{"cdi-read-only", "directories", Warning, "the file systems of the directories", `{path}: is on a read-only file system, so ADD of networks with "cdi" fails`,
			"mount it read-write, or set cdiDir in the node settings to a directory on another file system; in a container, mount that", here("is on a read-only file system")},
		{"nfs", "directories", Error, "the file system of stateDir", "stateDir is on NFS, where files cannot be locked, so every DEL fails", "set stateDir in the node settings to a directory on a local disk", here("stateDir is on NFS")},
		{"exposed", "directories", Error, "owner and mode of stateDir", "{why}: ADD and GC fail, and DEL ignores the journal", journal.OwnRemedy, here("ADD and GC fail, and DEL ignores the journal")},
		{"cdi-elsewhere", "directories", Warning, "cdiDir of the node settings", "{path}: is not a directory where container runtimes look for CDI specs by default",
			"add it to cdi_spec_dirs of the runtime, or set cdiDir in the node settings to /var/run/cdi", here("is not a directory where container runtimes look")},
		{"no-nri", "runtime", Error, "the NRI socket", "the container runtime has no NRI socket, and cni-dra-driver needs it", enableNRI, here("the container runtime has no NRI socket")},
		{"no-nri-yet", "runtime", Info, "the NRI socket", "the container runtime has no NRI socket; cni-dra-driver and the injection of devinfo-agent need it", enableNRI, none},
		{"driver-away-offer", "offer", Info, "the socket of cni-dra-driver", DriverAway, "", none},
		{"rules", "offer", Error, "the offer that cni-dra-driver has recorded", "cni-dra-driver offers nothing: {why}", CorrectRules, here("cni-dra-driver offers nothing")},
		{"rule-unmatched", "offer", Info, "the offer that cni-dra-driver has recorded", "{rules}: {why}",
			"correct the rule and restart cni-dra-driver, unless it is meant for other nodes; devinfoctl topology shows the devices of this node", none},
		{"records-unseen", "sight", Unknown, "the records of cni-dra-driver", "cni-dra-driver's records of {number} claims with leases are not visible here", "run devinfoctl doctor on the node itself, or in cni-dra-driver's pod", none},
		{"unread", "sight", Unknown, "what doctor cannot read", "{why}", "{remedy}", none},
		{"not-captured", "sight", Unknown, "the capture", "not in the capture: allocations of the kubelet, settings of VFs and interfaces, plugins, network configurations, directories and NRI",
			"capture the host again: devinfoctl capture -o FILE.txtar", none},
	}
}

// rulesOfPods returns the rules for what pods have.
func rulesOfPods() []row {
	var none Symptom
	return []row{
		{"driver-away", "attachments", Error, "the socket of cni-dra-driver", "cni-dra-driver does not run on this node: claims of its pods cannot be unprepared, so that these pods stay in Terminating",
			"start it: kubectl get pods -A -o wide -l app.kubernetes.io/name=cni-dra-driver lists its pods; its log says why it ends", Symptom{Section: "a-pod-stays-in-terminating", Says: "cni-dra-driver does not run on this node"}},
		{"attachment", "attachments", Error, "the journal, the records of claims, and what they name", "{attachment}: {state}", "{remedy}", Symptom{Section: "the-device-information-is-no-longer-true"}},
		{"attachment-changed", "attachments", Warning, "the device information and the device", "{attachment}: changed: {why}", "run devinfoctl check {name}", Symptom{Section: "the-device-information-is-no-longer-true"}},
		{"attachment-note", "attachments", Info, "the journal and the records of claims", "{attachment}: {state}", "{remedy}", none},
		{"attachment-unseen", "attachments", Unknown, "the network namespace", "{attachment}: {state}", "run devinfoctl doctor as root, outside of containers", none},
		{"lease-unrecorded", "leases", Warning, "the leases and the records of claims", "claim {claim}: has leases of {devices}, but cni-dra-driver has no record of the claim in {path}", "{remedy}", Symptom{Section: "is-held-by-error-104", Says: "has no record of the claim in"}},
		{"lease-aside", "leases", Warning, "the leases and the records of claims", "claim {claim}: has leases of {devices}, but cni-dra-driver could not read its record and has set it aside as {path}",
			"delete its pods, detach what they leave, and remove that file", Symptom{Section: "is-held-by-error-104", Says: "has set it aside as"}},
		{"two-holders", "holders", Error, "leases, allocations of the kubelet, locks of sriov-cni", "{device}: held by {one} and by {other}",
			"delete one of the two pods; then remove the VF from the device plugin's pool, or from the rules of the DRA driver", Symptom{Section: "is-held-by-error-104"}},
		{"allocated-gone", "allocations", Error, "allocations of the kubelet, and /sys", "{device}: pod {pod} has it from device plugin {resource}, but it is not on this node, so its next ADD fails",
			"restart the device plugin, so that it advertises the devices that the node has now, then delete the pod; addresses of a VM change when its hardware does", Symptom{Section: inDoctor, Says: "but it is not on this node, so its next ADD fails"}},
	}
}

var table = sync.OnceValue(Rules)

// findings collects the findings of one probe.
type findings []Finding

// add adds a finding of a rule. values are names in its text and remedy, each with its value.
func (f *findings) add(rule string, values ...string) {
	r := finding.Of(table(), rule, values...)
	*f = append(*f, Finding{Rule: r.Name, Level: r.Level, Text: r.Text, Remedy: r.Remedy})
}
