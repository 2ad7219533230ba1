package cluster

import (
	"cmp"
	"encoding/json"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"devinfo-cni.io/devinfo"
)

// DeviceKey is the key of the [Device] in the data that cni-dra-driver writes into the claim status. It stands
// beside the keys of the CNI result. For a device without a network it is the only key.
const DeviceKey = "devinfo-cni.io/device"

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

// DeviceOf returns the Device that device information describes.
func DeviceOf(info *devinfo.Info) Device {
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

// Attributes of a device in a ResourceSlice that correspond to keys of a device-info file. Kubernetes defines the
// first one, and any driver may set it. docs/dra/rules.md lists all attributes of cni-dra-driver.
const (
	busIDAttribute       = "resource.kubernetes.io/pciBusID"
	pfAttribute          = "devinfo-cni.io/pfPCIBusID"
	representorAttribute = "devinfo-cni.io/representor"
	rdmaAttribute        = "devinfo-cni.io/rdmaDevice"
)

type deviceID struct{ driver, pool, name string }

type offered struct {
	Device
	generation int64 // generation of the pool; a higher generation replaces a lower one
}

// Published returns the Device that the attributes of a ResourceSlice describe.
func Published(d *resourceapi.Device) (of Device) {
	text := func(name resourceapi.QualifiedName) string {
		if value := d.Attributes[name].StringValue; value != nil {
			return *value
		}
		return ""
	}
	if of.Device = text(busIDAttribute); of.Device != "" {
		of.Type = string(devinfo.TypePCI)
	}
	of.PF, of.Representor, of.RDMA = text(pfAttribute), text(representorAttribute), text(rdmaAttribute)
	return of
}

// Or returns d with its empty fields filled in from the published device. If the two are different devices, it
// returns d unchanged, because the CNI result is about the attachment itself.
func (d Device) Or(published Device) Device {
	if d.Device != "" && d.Device != published.Device {
		return d
	}
	if published.Device != "" {
		d.Type, d.Device = published.Type, published.Device
	}
	d.PF, d.Representor, d.RDMA = cmp.Or(d.PF, published.PF), cmp.Or(d.Representor, published.Representor), cmp.Or(d.RDMA, published.RDMA)
	return d
}

// byClaim returns the attachments in a claim's status (KEP-4817): devices with networkData, with a configured
// network, or with identified device data. A device whose network is not attached yet is included with the
// reason. The caller sets the pod.
func byClaim(claim *resourceapi.ResourceClaim) (list []Network) {
	for n := range claim.Status.Devices {
		d := &claim.Status.Devices[n]
		if a := byDevice(claim, d); d.NetworkData != nil || a.Network != "" || a.Device.Device != "" {
			list = append(list, a)
		}
	}
	return list
}

func byDevice(claim *resourceapi.ResourceClaim, d *resourceapi.AllocatedDeviceStatus) Network {
	a := Network{
		Namespace: claim.Namespace, Claim: claim.Name, Driver: d.Driver,
		Network: networkOf(claim, d), published: deviceID{d.Driver, d.Pool, d.Device},
	}
	if data := d.NetworkData; data != nil {
		a.Interface, a.MAC, a.IPs = data.InterfaceName, data.HardwareAddress, data.IPs
	}
	if ready := meta.FindStatusCondition(d.Conditions, "Ready"); ready != nil && ready.Status != "True" {
		a.Problem = ready.Reason + ": " + ready.Message
	}
	if d.Data != nil {
		a.identify(d.Data.Raw)
	}
	return a
}

// identify sets the device from the device data that cni-dra-driver writes into the claim status: the key
// [DeviceKey], else a CNI result (SPEC.md 1.1.0, section 5). It ignores data of other drivers.
func (a *Network) identify(data []byte) {
	var result struct {
		Device     Device `json:"devinfo-cni.io/device"`
		CNIVersion string
		Interfaces []struct{ Name, Sandbox, PCIID, SocketPath string }
	}
	if json.Unmarshal(data, &result) != nil {
		return
	}
	if result.Device.Device != "" {
		a.Device, a.published = result.Device, deviceID{}
		return
	}
	if result.CNIVersion == "" {
		return
	}
	for _, i := range result.Interfaces {
		if i.Sandbox == "" || i.Name != a.Interface {
			continue
		}
		switch {
		case i.PCIID != "":
			a.Type, a.Device.Device = "pci", i.PCIID
		case i.SocketPath != "":
			a.Device.Device = i.SocketPath
		}
	}
}

// request returns the request that the device is allocated to, or "" if the claim does not name it.
func request(claim *resourceapi.ResourceClaim, d *resourceapi.AllocatedDeviceStatus) string {
	for _, r := range claim.Status.Allocation.Devices.Results {
		share := d.ShareID == nil && r.ShareID == nil || d.ShareID != nil && r.ShareID != nil && *d.ShareID == string(*r.ShareID)
		if r.Driver == d.Driver && r.Pool == d.Pool && r.Device == d.Device && share {
			return r.Request
		}
	}
	return ""
}

// networkOf returns the name of the CNI network in the driver's CNIConfig, which the class or the claim
// contains; "" if there is none.
func networkOf(claim *resourceapi.ResourceClaim, d *resourceapi.AllocatedDeviceStatus) string {
	if claim.Status.Allocation == nil {
		return ""
	}
	name := request(claim, d)
	for _, c := range claim.Status.Allocation.Devices.Config {
		var cni struct{ Config struct{ Name string } }
		ours := c.Opaque != nil && c.Opaque.Driver == d.Driver && (len(c.Requests) == 0 || slices.Contains(c.Requests, name))
		if ours && json.Unmarshal(c.Opaque.Parameters.Raw, &cni) == nil && cni.Config.Name != "" {
			return cni.Config.Name
		}
	}
	return ""
}
