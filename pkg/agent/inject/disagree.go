package inject

import (
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// disagreement is a contradiction between a variable of a device plugin, such as PCIDEVICE_EXAMPLE_COM_VF=0000:03:00.5,
// and the devices of the pod's networks. It can occur because the kubelet assigns devices to containers, Multus assigns
// them to networks, and each has its own order.
type disagreement struct {
	kind     Disagreement
	what     string
	networks string // the interfaces with their devices
}

// disagreements compares the device variables in env with the attachments of the pod. It returns nil if the
// device of an attachment is unknown, or if no attachment has a PCI device.
func disagreements(env []string, nics []nic) (list []disagreement) {
	var have []pci.Address
	var named []string
	for _, n := range nics {
		if n.gone != nil {
			return nil
		}
		if a, err := pci.Parse(n.info.Texts()["pci-address"]); err == nil { // of the device, or of the function behind it
			have, named = append(have, a), append(named, n.Interface+" has "+a.String())
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
			address, err := pci.Parse(given)
			if err != nil { // another kind of variable, such as PCIDEVICE_..._INFO
				break
			}
			before := at
			if at = slices.Index(have, address); at < 0 {
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
