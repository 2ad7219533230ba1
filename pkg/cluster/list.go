package cluster

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"devinfo-cni.io/devinfo/pci"
)

// Ended says that none of the pod's containers runs or will run again.
func Ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Who returns the attachments that a device belongs to. The device may be given as a PCI
// address with or without its domain, a vDPA or RDMA device, a representor, a socket, or a
// MAC or IP address. A PF's address also finds its VFs.
func Who(list []Network, device string) []Network {
	names := []string{device}
	for _, full := range []string{device, "0000:" + device} {
		if address, err := pci.Parse(full); err == nil {
			names = append(names, address.String())
		}
	}
	is := func(s string) bool {
		return s != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(s, name) })
	}
	found := []Network{}
	for _, a := range list {
		ips := slices.ContainsFunc(a.IPs, func(ip string) bool { address, _, _ := strings.Cut(ip, "/"); return is(address) || is(ip) })
		if is(a.Device) || is(a.PF) || is(a.Representor) || is(a.MAC) || ips || slices.ContainsFunc(strings.Split(a.RDMA, ","), is) || is(a.backing()) {
			found = append(found, a)
		}
	}
	return found
}
