// Package view describes a device in the few fields that the commands and the status of a claim show.
package view

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
)

// Driver is the name of cni-dra-driver, which DeviceClasses, claims and RBAC rules contain.
const Driver = "cni.dra.networking.x-k8s.io"

// Key is the key of the [Device] in the data that cni-dra-driver writes into the claim status. It stands
// beside the keys of the CNI result. For a device without a network it is the only key.
const Key = "devinfo-cni.io/device"

// A Device is the description of a device in a claim status. It has every field that the commands show, so
// that they need not read ResourceSlices.
type Device struct {
	Type        string `json:"type,omitempty"`        // "pci", "vdpa", "vhost-user" or "memif"
	Device      string `json:"device,omitempty"`      // PCI address, vDPA device or path of a socket
	Path        string `json:"path,omitempty"`        // path of the device node of a vDPA device
	PCI         string `json:"pci,omitempty"`         // PCI address behind a vDPA device
	PF          string `json:"pf,omitempty"`          // PCI address of the PF
	Representor string `json:"representor,omitempty"` // interface
	RDMA        string `json:"rdma,omitempty"`        // devices, comma-joined
}

// Of returns the Device that device information describes.
func Of(info *devinfo.Info) Device {
	of := Device{Type: string(info.Type)}
	switch d := info.Device().(type) {
	case *devinfo.PCI:
		of.Device, of.PF, of.Representor, of.RDMA = d.Address, d.PFAddress, d.Representor, d.RDMADevice
	case *devinfo.VDPA:
		of.Device, of.Path, of.PCI, of.PF, of.Representor = cmp.Or(d.ParentDevice, d.Path), d.Path, d.Address, d.PFAddress, d.Representor
	case *devinfo.VhostUser:
		of.Device = d.Path
	case *devinfo.Memif:
		of.Device = d.Path
	}
	return of
}

// Withheld is a device, device node or socket that containers do not get, and the setting that would change it.
type Withheld struct {
	Device string `json:"device"`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
	Mounts string `json:"mounts,omitempty"` // directory on the node that a pod may mount itself instead
}

// Named returns a function that reports whether one of its arguments names the device, in any letter case. A PCI
// address may lack its domain.
func Named(device string) func(names ...string) bool {
	names := []string{device, FullAddress(device)}
	return func(of ...string) bool {
		return slices.ContainsFunc(of, func(s string) bool {
			return s != "" && slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(s, name) })
		})
	}
}

// FullAddress adds the usual domain to a PCI address without one, as lspci prints it. It returns another name unchanged.
func FullAddress(name string) string {
	for _, full := range []string{name, "0000:" + name} {
		if address, err := pci.Parse(full); err == nil {
			return address.String()
		}
	}
	return name
}

var nearlyPCI = regexp.MustCompile(`^([0-9A-Za-z]+:)?[0-9A-Za-z]+:[0-9A-Za-z]+\.[0-9A-Za-z]+$`)

// NoDevice is in devinfoctl's error for a name that no device of the node has.
const NoDevice = "no device of that name"

// Misspelt says what a PCI address may be if the name is nearly one; "" = it is one, or another name.
func Misspelt(name string) string {
	if _, err := pci.Parse(FullAddress(name)); err == nil || !nearlyPCI.MatchString(name) {
		return ""
	}
	return "a PCI address is DOMAIN:BUS:DEVICE.FUNCTION, such as 0000:03:1f.7: the device is 00 to 1f, and the function 0 to 7"
}
