package doctor

import (
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/finding"
)

// inDoctor is the section of findings that no other section explains.
const inDoctor = "doctor-reports-a-problem"

const (
	installPlugin = "run devinfoctl install --cni-bin-dir DIR, or let devinfo-agent install it"
	room          = "free space and inodes there, or remove what is in the directory's place; or name another directory in the node settings"
	enableNRI     = "enable NRI: containerd has it on from 2.0, CRI-O from 1.30; where it is off, set disable = false in containerd's plugins.\"io.containerd.nri.v1.nri\", or enable_nri = true in CRI-O's [crio.nri]"
)

// DriverAway is the text of the rule "driver-away-offer".
const DriverAway = "cni-dra-driver does not run on this node, so it offers no devices"

// CorrectRules is the remedy for invalid rules.
const CorrectRules = "correct the rules, and restart cni-dra-driver, which reads them when it starts"

// Rules are the findings: first those about what pods have.
var Rules = finding.Table{
	finding.Row("driver-away", finding.Error, "the socket of cni-dra-driver", "cni-dra-driver does not run on this node: claims of its pods cannot be unprepared, so that these pods stay in Terminating",
		"start it: kubectl get pods -A -o wide -l app.kubernetes.io/name=cni-dra-driver lists its pods; its log says why it ends", "a-pod-stays-in-terminating", "cni-dra-driver does not run on this node"),
	finding.Row("attachment", finding.Error, "the journal, the records of claims, and what they name", "{attachment}: {state}", "{remedy}", "the-device-information-is-no-longer-true", ""),
	finding.Row("attachment-changed", finding.Warning, "the device information and the device", "{attachment}: changed: {why}", "run devinfoctl check {name}", "the-device-information-is-no-longer-true", ""),
	finding.Row("attachment-note", finding.Info, "the journal and the records of claims", "{attachment}: {state}", "{remedy}", "", ""),
	finding.Row("attachment-unseen", finding.Unknown, "the network namespace", "{attachment}: {state}", "run devinfoctl doctor as root, outside of containers", "", ""),
	finding.Row("lease-unrecorded", finding.Warning, "the leases and the records of claims", "claim {claim}: has leases of {devices}, but cni-dra-driver has no record of the claim in {path}", "{remedy}", "is-held-by-error-104", "has no record of the claim in"),
	finding.Row("lease-aside", finding.Warning, "the leases and the records of claims", "claim {claim}: has leases of {devices}, but cni-dra-driver could not read its record and has set it aside as {path}",
		"delete its pods, detach what they leave, and remove that file", "is-held-by-error-104", "has set it aside as"),
	finding.Row("two-holders", finding.Error, "leases, allocations of the kubelet, locks of sriov-cni", "{device}: held by {one} and by {other}", "delete one of the two pods; then remove the VF from the device plugin's pool, or from the rules of the DRA driver", "is-held-by-error-104", ""),
	finding.Row("allocated-gone", finding.Error, "allocations of the kubelet, and /sys", "{device}: pod {pod} has it from device plugin {resource}, but it is not on this node, so its next ADD fails",
		"restart the device plugin, so that it advertises the devices that the node has now, then delete the pod; addresses of a VM change when its hardware does", inDoctor, "but it is not on this node, so its next ADD fails"),
	finding.Row("unusable", finding.Warning, "the device in /sys, and its interface in the kernel", "{device}: no pod has it, but the next one could not use it: {found}{last} (rule {rule})", "{remedy}", inDoctor, "the next one could not use it"),
	finding.Row("unusable-by-some", finding.Warning, "the settings of the VF on its PF, GUIDs, altnames", "{device}: no pod has it, but the next one may not be able to use it: {found}{last} (rule {rule})",
		"unless the network of the next pod sets it in ADD, {remedy}", inDoctor, "the next one may not be able to use it"),
	finding.Row("lost-interface", finding.Warning, "the interfaces in all network namespaces of processes and mounts", "{device}: no pod has it, and its interface is neither on the host nor in a network namespace that can be named{last} (rule {rule})",
		"{remedy}", inDoctor, "neither on the host nor in a network namespace that can be named"),
	finding.Row("interface-elsewhere", finding.Info, "the interfaces in all network namespaces", "{device}: no pod is known to have it, but {found}{last}", "{remedy}", "", ""),
	// The kernel removes them at the event NETDEV_UNREGISTER of a move (rxe_notify in drivers/infiniband/sw/rxe/rxe_net.c, siw_netdev_event in sw/siw/siw_main.c).
	finding.Row("soft-rdma", finding.Info, "the RDMA devices in software and their interfaces", "{device}: no pod has it, but the RDMA device {rdma} is on its interface {interface}, and ends when a pod gets that", "if a program of this node uses {rdma}, take the device out of the device plugin's pool, or out of the rules", "", ""),
	finding.Row("interface-unseen", finding.Unknown, "the interfaces in all network namespaces", "{device}: no pod is known to have it, and its interface is not on the host", "run devinfoctl doctor as root on the node itself, which sees all network namespaces", "", ""),
	finding.Row("interfaces-unread", finding.Unknown, "the settings of the interfaces", "the settings of {interfaces} could not be read", "run devinfoctl doctor in the host's network namespace", "", ""),
	finding.Row("differs", finding.Info, "IFLA_VF_INFO of the PF", "{device}: no pod has it, and it has {what}, unlike the free VFs beside it{last}", "unless it is wanted, ip link set {pf} vf {index} {undo}", "", ""),
	finding.Row("settings-unseen", finding.Unknown, "IFLA_VF_INFO of the PFs", "the PFs do not report the settings of their VFs", "run devinfoctl doctor in the host's network namespace", "", ""),
	finding.Row("same-mac", finding.Error, "IFLA_VF_INFO of the PFs", "{devices} have the same MAC, {mac}", "give one VF its own MAC: ip link set {pf} vf {index} mac MAC", inDoctor, "have the same MAC"),
	finding.Row("card", finding.Info, "PCI IDs and drivers", "how devinfo was tried on {text}", "{remedy}", "", ""),
	finding.Row("plugin-missing", finding.Error, "the directories of CNI plugins", "the devinfo plugin is not in {dirs}", installPlugin, "a-pod-stays-in-terminating", "the devinfo plugin is not in"),
	finding.Row("plugin-broken", finding.Error, "VERSION of the plugin", "{path}: the devinfo plugin does not run: {why}", installPlugin, inDoctor, "the devinfo plugin does not run"),
	finding.Row("plugin-other", finding.Warning, "VERSION of the plugin", "{path} is {build}, and this program is {own}", installPlugin+", so that both have the same version", inDoctor, "and this program is"),
	finding.Row("settings", finding.Error, "the node settings", "{why}", "correct the file, because every ADD fails", inDoctor, ""),
	finding.Row("conf-missing", finding.Unknown, "the directory of CNI configurations", "{path}: no such file or directory", NameConfDir, "", ""),
	finding.Row("no-network", finding.Info, "the directory of CNI configurations", "no network configuration on this node contains devinfo", "check the networks in the API: kubectl get net-attach-def -A -o yaml | devinfoctl validate -", "", ""),
	finding.Row("network", finding.Error, "the CNI configurations with devinfo", "{path}: {finding}", "correct the file, then run devinfoctl validate {path}", inDoctor, ""),
	finding.Row("network-doubt", finding.Warning, "the CNI configurations with devinfo", "{path}: {finding}", "correct the file, then run devinfoctl validate {path}", inDoctor, ""),
	finding.Row("directory", finding.Warning, "the directories of CNI plugins", "{path}: cannot be used: {why}", "create it, or name another directory with --cni-path; in a container, mount it", inDoctor, "cannot be used"),
	finding.Row("read-only", finding.Error, "the file systems of the directories", "{path}: is on a read-only file system, so every ADD fails",
		"mount it read-write, or set stateDir or deviceInfoDir in the node settings to a directory on another file system; in a container, mount that", inDoctor, "is on a read-only file system"),
	finding.Row("cdi-read-only", finding.Warning, "the file systems of the directories", `{path}: is on a read-only file system, so ADD of networks with "cdi" fails`,
		"mount it read-write, or set cdiDir in the node settings to a directory on another file system; in a container, mount that", inDoctor, "is on a read-only file system"),
	finding.Row("unwritable", finding.Error, "writing an unnamed file in each directory", "{path}: cannot be used, so every ADD fails: {why}", room, inDoctor, "cannot be used"),
	finding.Row("cdi-unwritable", finding.Warning, "writing an unnamed file in each directory", `{path}: cannot be used, so ADD of networks with "cdi" fails: {why}`, room, inDoctor, "cannot be used"),
	finding.Row("nfs", finding.Error, "the file system of stateDir", "stateDir is on NFS, where files cannot be locked, so every DEL fails", "set stateDir in the node settings to a directory on a local disk", inDoctor, "stateDir is on NFS"),
	finding.Row("exposed", finding.Error, "owner and mode of stateDir", "{why}: ADD and GC fail, and DEL ignores the journal", journal.OwnRemedy, inDoctor, "ADD and GC fail, and DEL ignores the journal"),
	finding.Row("cdi-elsewhere", finding.Warning, "cdiDir of the node settings", "{path}: is not a directory where container runtimes look for CDI specs by default",
		"add it to cdi_spec_dirs of the runtime, or set cdiDir in the node settings to /var/run/cdi", inDoctor, "is not a directory where container runtimes look"),
	finding.Row("no-nri", finding.Error, "the NRI socket", "the container runtime has no NRI socket, and cni-dra-driver needs it", enableNRI, inDoctor, "the container runtime has no NRI socket"),
	finding.Row("no-nri-yet", finding.Info, "the NRI socket", "the container runtime has no NRI socket; cni-dra-driver and the injection of devinfo-agent need it", enableNRI, "", ""),
	finding.Row("driver-away-offer", finding.Info, "the socket of cni-dra-driver", DriverAway, "", "", ""),
	finding.Row("rules", finding.Error, "the offer that cni-dra-driver has recorded", "cni-dra-driver offers nothing: {why}", CorrectRules, inDoctor, "cni-dra-driver offers nothing"),
	finding.Row("rule-unmatched", finding.Info, "the offer that cni-dra-driver has recorded", "{rules}: {why}", "correct the rule and restart cni-dra-driver, unless it is meant for other nodes; devinfoctl topology shows the devices of this node", "", ""),
	finding.Row("records-unseen", finding.Unknown, "the records of cni-dra-driver", "cni-dra-driver's records of {number} claims with leases are not visible here", "run devinfoctl doctor on the node itself, or in cni-dra-driver's pod", "", ""),
	finding.Row("unread", finding.Unknown, "what doctor cannot read", "{why}", "{remedy}", "", ""),
	finding.Row("not-captured", finding.Unknown, "the capture", "not in the capture: allocations of the kubelet, settings of VFs and interfaces, plugins, network configurations, directories and NRI",
		"capture the host again: devinfoctl capture -o FILE.txtar", "", ""),
}

// findings collects the findings of one probe.
type findings []Finding

// add adds a finding of a rule. values are names in its text and remedy, each with its value.
func (f *findings) add(rule string, values ...string) {
	r := Rules.Of(rule, values...)
	*f = append(*f, Finding{Rule: r.Name, Level: r.Level, Text: r.Text, Remedy: r.Remedy})
}
