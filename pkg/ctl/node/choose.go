package node

import (
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/view"
)

// Choose returns the attachments of the pods, network, containers or devices with this name, in this order: the first
// kind that has the name is used. A name may also denote one attachment.
func Choose(list []Attachment, name string) ([]Attachment, error) {
	for _, has := range []func(a Attachment, name string) bool{byPod, byNetwork, byContainer, byDevice} {
		var found []Attachment
		for _, a := range list {
			if has(a, name) {
				found = append(found, a)
			}
		}
		if len(found) > 0 {
			return found, nil
		}
	}
	return nil, clierr.For(fmt.Errorf("%s: no such pod, network, container, attachment or device", name), "devinfoctl list shows them")
}

// byPod matches a pod with or without its namespace, and with the namespace also POD/INTERFACE.
func byPod(a Attachment, name string) bool {
	_, pod, there := strings.Cut(a.Pod, "/")
	return there && (name == pod || name == a.Pod || name == a.Pod+"/"+a.IfName)
}

func byNetwork(a Attachment, name string) bool { return name != "" && a.Network == name }

// byContainer matches NETWORK/CONTAINER/INTERFACE, NETWORK/CONTAINER or CONTAINER, where the container ID may
// be a prefix.
func byContainer(a Attachment, name string) bool {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 1:
		return name != "" && strings.HasPrefix(a.ContainerID, name)
	case 2:
		parts = append(parts, a.IfName)
	}
	return a.Network == parts[0] && strings.HasPrefix(a.ContainerID, parts[1]) && a.IfName == parts[2]
}

// byDevice matches a device that the attachment has, shares or names: see [view.Named]. A PF's address also matches its
// VFs.
func byDevice(a Attachment, name string) bool {
	return view.Named(name)(slices.Concat(a.Has, a.Shares, strings.Split(a.RDMA, ","), []string{a.Device, a.PCI, a.PF, a.Representor})...)
}
