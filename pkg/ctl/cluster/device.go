package cluster

import (
	"encoding/json"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"devinfo-cni.io/pkg/core/view"
)

type deviceID struct{ driver, pool, name string }

type offered struct {
	view.Device
	generation int64 // generation of the pool; a higher generation replaces a lower one
}

func viewOf(d *resourceapi.Device) view.Device {
	return view.Published(func(name string) string {
		if value := d.Attributes[resourceapi.QualifiedName(name)].StringValue; value != nil {
			return *value
		}
		return ""
	})
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
// [view.Key], else a CNI result (SPEC.md 1.1.0, section 5). It ignores data of other drivers.
func (n *Network) identify(data []byte) {
	var result struct {
		Device     view.Device `json:"devinfo-cni.io/device"`
		CNIVersion string
		Interfaces []struct{ Name, Sandbox, PCIID, SocketPath string }
	}
	if json.Unmarshal(data, &result) != nil {
		return
	}
	if result.Device.Device != "" {
		n.Device, n.published = result.Device, deviceID{}
		return
	}
	if result.CNIVersion == "" {
		return
	}
	for _, i := range result.Interfaces {
		if i.Sandbox == "" || i.Name != n.Interface {
			continue
		}
		switch {
		case i.PCIID != "":
			n.Type, n.Device.Device = "pci", i.PCIID
		case i.SocketPath != "":
			n.Device.Device = i.SocketPath
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
