package metadata

import (
	"errors"
	"fmt"
	"io/fs"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/sysfs"
)

// Prefix is the domain of the attributes that are not Kubernetes' own.
const Prefix = "devinfo-cni.io/"

// The attributes that KubeVirt's network binding plugin for vhost-user reads, which are in
// no domain (kubevirt/vhostuser-network-binding-plugin, pkg/domain).
const (
	VhostUserPath = "vhost-user-path" // of the socket, as the container has it
	MTU           = "mtu"             // int, bytes
)

// Attributes are those of a device, from its device information, which may be nil, and sysfs. warn is
// called for each attribute that is left out, with the reason. Kubernetes'
// own are pciBusID, pcieRoot and numaNode, of the function behind the device, as far as
// the kernel knows them. The others are below [Prefix], and of vhost-user also [VhostUserPath].
// An attribute holds at most 64 bytes.
//
// Of several RDMA devices rdmaDevice holds the names joined by commas, as the device
// information does: a metadata file has no lists.
func Attributes(info *devinfo.Info, sys *sysfs.FS, warn func(string)) map[string]resourceapi.DeviceAttribute {
	if info == nil {
		return nil
	}
	a := attributes{sys, func(format string, args ...any) { warn(fmt.Sprintf(format, args...)) }, map[string]resourceapi.DeviceAttribute{}}
	a.set("type", string(info.Type))
	switch d := info.Device().(type) {
	case *devinfo.PCI:
		a.function(d.Address, d.PFAddress, d.Representor)
		a.set("rdmaDevice", d.RDMADevice)
		a.set("vhostNet", d.VhostNet)
	case *devinfo.VDPA:
		a.function(d.Address, d.PFAddress, d.Representor)
		a.set("vdpaParent", d.ParentDevice)
		a.set("vdpaDriver", d.Driver)
		a.set("devicePath", d.Path)
	case *devinfo.VhostUser:
		a.set("socketPath", d.Path)
		a.set("vhostUserMode", d.Mode)
		if path, ok := a.to[Prefix+"socketPath"]; ok {
			a.to[VhostUserPath] = path
		}
	case *devinfo.Memif:
		a.set("socketPath", d.Path)
		a.set("memifRole", d.Role)
		a.set("memifMode", d.Mode)
	}
	return a.to
}

type attributes struct {
	sys  *sysfs.FS
	warn func(format string, args ...any)
	to   map[string]resourceapi.DeviceAttribute
}

// set sets an attribute below Prefix; "" = there is none.
func (a *attributes) set(name, value string) {
	const limit = resourceapi.DeviceAttributeMaxValueLength
	switch {
	case value == "":
	case len(value) > limit:
		a.warn("attribute %s is left out: %q has %d bytes, at most %d are allowed", Prefix+name, value, len(value), limit)
	default:
		a.to[Prefix+name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

// function sets the attributes of a PCI function, and of its PF.
func (a *attributes) function(address, pf, representor string) {
	if own, ok := a.address(string(deviceattribute.StandardDeviceAttributePCIBusID), address); ok {
		a.standard(deviceattribute.GetPCIBusIDAttribute(own.String()))
		if links, ok := a.sys.Files().(fs.ReadLinkFS); ok {
			a.standard(deviceattribute.GetPCIeRootAttributeByPCIBusID(own.String(), deviceattribute.WithFS(links)))
		} else {
			a.warn("attribute %s is left out: this sysfs has no links", deviceattribute.StandardDeviceAttributePCIeRoot)
		}
		switch node, ok, err := a.sys.NUMANode(own); {
		case err != nil:
			a.warn("attribute %s is left out: %v", deviceattribute.StandardDeviceAttributeNUMANode, err)
		case ok: // the helper that reads it returns an ordinary error for -1, which means that there is none
			a.standard(deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ScalarAttribute))
		}
	}
	if pf, ok := a.address(Prefix+"pfPCIBusID", pf); ok {
		a.set("pfPCIBusID", pf.String())
	}
	a.set("representor", representor)
}

func (a *attributes) address(name, text string) (pci.Address, bool) {
	if text == "" {
		return pci.Address{}, false
	}
	address, err := pci.Parse(text)
	if err != nil {
		a.warn("attribute %s is left out: %v", name, err)
	}
	return address, err == nil
}

// standard takes an attribute from Kubernetes' own helpers. There is no warning if the kernel does
// not know the function: its driver's device may be all that the pod needs.
func (a *attributes) standard(attribute deviceattribute.DeviceAttribute, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		a.warn("an attribute is left out: %v", err)
	default:
		a.to[string(attribute.Name)] = attribute.Value
	}
}
