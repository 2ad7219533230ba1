package inject

import (
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
)

// A disagreement is between a container's variable from its device plugin, such as
// PCIDEVICE_EXAMPLE_COM_VF=0000:03:00.5,0000:03:00.2, and the devices of its pod's networks.
// The kubelet gives devices to containers, and Multus to networks, each in an order of its own.
type disagreement struct {
	kind     Disagreement
	what     string
	networks string // what they have
}

// disagreements compares each variable of a container with the nics of its pod. Nothing is said
// where the device of a network is not known, or none has one.
func disagreements(env []string, nics []nic) (list []disagreement) {
	var have, named []string
	for _, n := range nics {
		if n.gone != nil {
			return nil
		}
		if address := addressOf(n.info); address != "" {
			have, named = append(have, address), append(named, n.ifName+" has "+address)
		}
	}
	if have == nil {
		return nil
	}
	networks := strings.Join(named, ", ")
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		if !strings.HasPrefix(name, "PCIDEVICE_") {
			continue
		}
		at := -1
		for _, given := range strings.Split(value, ",") {
			if _, err := pci.Parse(given); err != nil { // one of its other variables, such as PCIDEVICE_..._INFO
				break
			}
			before := at
			if at = slices.Index(have, given); at < 0 {
				list = append(list, disagreement{OtherDevice, name + " names " + given + ", but no network of the pod has that device", networks})
				break
			} else if at < before {
				list = append(list, disagreement{OtherOrder, name + " lists the devices in a different order than the pod's interfaces: " + value, networks})
				break
			}
		}
	}
	return list
}

// addressOf is the PCI function that a device is, or is on; "" = none that is known.
func addressOf(info *devinfo.Info) string {
	switch d := info.Device().(type) {
	case *devinfo.PCI:
		return d.Address
	case *devinfo.VDPA:
		return d.Address
	}
	return ""
}
