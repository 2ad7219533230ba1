package inventory

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/devinfo/pci"
)

// Allocated lists the devices that device plugins have given to pods, for
// [Situation].Others, from the kubelet's answer (podresources/v1, List). Device plugins
// name a device as they like; those of networks use PCI addresses and auxiliary names.
func Allocated(answer *podresources.ListPodResourcesResponse) map[string]string {
	all := map[string]string{}
	for _, p := range answer.GetPodResources() {
		for _, c := range p.GetContainers() {
			for _, d := range c.GetDevices() {
				for _, id := range d.GetDeviceIds() {
					all[id] = fmt.Sprintf("pod %s/%s has it from device plugin %s", p.GetNamespace(), p.GetName(), d.GetResourceName())
				}
			}
		}
	}
	return all
}

// Locks lists the functions that sriov-cni has given to pods, each with the path of the
// network namespace, from its directory /var/lib/cni/sriov/pci, where each has a file
// (sriov-cni, pkg/utils, PCIAllocator). A lock whose namespace is gone holds nothing, just
// as sriov-cni treats it. No directory means no locks.
func Locks(dir fs.FS, gone func(netns string) (bool, error)) (map[string]string, error) {
	entries, err := fs.ReadDir(dir, ".")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("locks of sriov-cni: %w", err)
	}
	all := map[string]string{}
	for _, e := range entries {
		a, err := pci.Parse(e.Name())
		if err != nil || !e.Type().IsRegular() {
			continue
		}
		data, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			continue // unlocked meanwhile
		}
		netns := strings.TrimSpace(string(data))
		if away, err := gone(netns); err == nil && away {
			continue
		}
		all[a.String()] = netns
	}
	return all, nil
}

// Locked gives [Locks] as reasons, for [Situation].Others.
func Locked(locks map[string]string) map[string]string {
	all := make(map[string]string, len(locks))
	for address, netns := range locks {
		all[address] = "sriov-cni has given it to network namespace " + netns
	}
	return all
}
