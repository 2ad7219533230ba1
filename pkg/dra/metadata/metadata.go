// Package metadata tells what became of a network: the pod, by device attributes and
// network data in its metadata file (KEP-5304), and the API server, by the status of
// an allocated device (resource.k8s.io/v1, AllocatedDeviceStatus).
//
// Of the host it reads only what sysfs says of a PCI function. The API refuses a whole object
// for one field that is over a limit, so such a field is left out, with a warning.
package metadata

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/cluster"
	"devinfo-cni.io/pkg/sysfs"
)

// Device is an allocated device of ours.
type Device struct {
	Driver, Pool, Name string
	ShareID            *types.UID  // of the allocation; nil = it has none
	Since              metav1.Time // of the last change of its condition
	Shown              cluster.Device
}

// Attached is the status of a device after ADD, with the condition that the Device Configuration
// API has. [Data] warns of what is left out.
func (d Device) Attached(result json.RawMessage, network *resourceapi.NetworkDeviceData) resourceapi.AllocatedDeviceStatus {
	s := d.status(result, metav1.Condition{
		Status: metav1.ConditionTrue, Reason: "NetworkInterfaceReady", Message: "CNI-DRA-Driver has configured the device.",
	})
	s.NetworkData = network
	return s
}

// Bare is the status of a device that the driver attaches to no network.
func (d Device) Bare() resourceapi.AllocatedDeviceStatus { return d.status(nil) }

// Failed is the status of a device whose ADD has failed; message is the error, of which
// the first 32 KiB are kept.
func (d Device) Failed(message string) resourceapi.AllocatedDeviceStatus {
	const limit = 32 << 10 // of metav1.Condition's message, in bytes
	message = strings.ToValidUTF8(message, "\ufffd")
	if len(message) > limit {
		message = strings.ToValidUTF8(message[:limit], "") // without half a rune
	}
	return d.status(nil, metav1.Condition{Status: metav1.ConditionFalse, Reason: "NetworkInterfaceNotReady", Message: message})
}

func (d Device) status(result json.RawMessage, conditions ...metav1.Condition) resourceapi.AllocatedDeviceStatus {
	for n := range conditions {
		conditions[n].Type, conditions[n].LastTransitionTime = "Ready", d.Since
	}
	data, _ := Data(result, d.Shown)
	return resourceapi.AllocatedDeviceStatus{
		Driver: d.Driver, Pool: d.Pool, Device: d.Name, ShareID: (*string)(d.ShareID), Conditions: conditions, Data: data,
	}
}

// Data is a CNI result as far as the API takes it, an object of at most 10 KiB, with the device
// under [cluster.DeviceKey]; nil = there is neither. If that is too long, routes and DNS settings
// are left out, and if need be the whole result, and at last everything. The warnings say so.
//
// The result is encoded again, as the API server does: it measures its own text.
func Data(result json.RawMessage, of cluster.Device) (data *runtime.RawExtension, warnings []string) {
	const limit = resourceapi.AllocatedDeviceStatusDataMaxLength
	device, whole := map[string]any{}, map[string]any{}
	if err := utiljson.Unmarshal(result, &whole); result != nil && (err != nil || whole == nil) {
		warnings = []string{"data is left out: the CNI result is not a JSON object"}
		whole = map[string]any{}
	}
	if of != (cluster.Device{}) {
		device[cluster.DeviceKey], whole[cluster.DeviceKey] = of, of
	}
	if len(whole) == 0 {
		return nil, warnings
	}
	short := maps.Clone(whole)
	delete(short, "routes")
	delete(short, "dns")
	long := ""
	for _, try := range []struct {
		object map[string]any
		left   string
	}{{whole, ""}, {short, "routes and dns are left out of data: "}, {device, "the CNI result is left out of data: "}} {
		raw, err := json.Marshal(try.object)
		if long == "" {
			long = fmt.Sprintf("it has %d bytes, at most %d are allowed", len(raw), limit)
		}
		if err != nil || len(raw) > limit || len(try.object) == 0 {
			continue
		}
		if try.left != "" {
			warnings = []string{try.left + long}
		}
		return &runtime.RawExtension{Raw: raw}, warnings
	}
	return nil, []string{"data is left out: " + long}
}

// Prefix is the domain of the attributes that are not Kubernetes' own.
const Prefix = "devinfo-cni.io/"

// The attributes that KubeVirt's network binding plugin for vhost-user reads, which are in
// no domain (kubevirt/vhostuser-network-binding-plugin, pkg/domain).
const (
	VhostUserPath = "vhost-user-path" // of the socket, as the container has it
	MTU           = "mtu"             // int, bytes
)

// Attributes returns those of a device, from its device information, which may be nil, and sysfs. Kubernetes' own
// are pciBusID, pcieRoot and numaNode, of the function behind the device, as far as the kernel knows them. The
// others are below [Prefix], and of vhost-user also [VhostUserPath]. warn is called with the reason for each
// attribute that is left out: one holds at most 64 bytes. A metadata file has no lists, so rdmaDevice holds the
// names of several RDMA devices joined by commas, as the device information does.
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

// NetworkData returns what a CNI result, of any version, has of the interface ifName in the network namespace at
// netns: its hardware address, and the IP addresses that are its, or of no interface, in the canonical form, each
// once, at most 16. The warnings say what is left out. An error is a result that CNI does not know.
func NetworkData(result json.RawMessage, ifName, netns string) (*resourceapi.NetworkDeviceData, []string, error) {
	r, own, err := parse(result, ifName, netns)
	if err != nil {
		return nil, nil, fmt.Errorf("CNI result: %w", err)
	}
	data := &resourceapi.NetworkDeviceData{InterfaceName: ifName}
	var warnings []string
	if own >= 0 {
		if data.HardwareAddress, err = hardwareAddress(r.Interfaces[own].Mac); err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	for _, ip := range r.IPs {
		if ip == nil || ip.Interface != nil && *ip.Interface != own {
			continue
		}
		if text, ok := canonical(ip.Address); !ok {
			warnings = append(warnings, fmt.Sprintf("the address %s (mask %s) is left out: it has no canonical form", ip.Address.IP, ip.Address.Mask))
		} else if !slices.Contains(data.IPs, text) {
			data.IPs = append(data.IPs, text)
		}
	}
	const maxIPs = resourceapi.NetworkDeviceDataMaxIPs
	if all := len(data.IPs); all > maxIPs {
		data.IPs = data.IPs[:maxIPs]
		warnings = append(warnings, fmt.Sprintf("%d of %d addresses are left out: at most %d are allowed", all-maxIPs, all, maxIPs))
	}
	return data, warnings, nil
}

// MTUOf returns the MTU in bytes of the interface ifName in the network namespace at netns. It is the one of
// the CNI result, which has the field since CNI 1.1.0. Otherwise it is the "mtu" of the last plugin in the
// configuration list that has one, or 1500, which a virtio device has if nobody gives it another. KubeVirt's
// binding plugin for vhost-user requires an MTU of at least 68.
func MTUOf(result, list json.RawMessage, ifName, netns string) int64 {
	const least = 68 // ETH_MIN_MTU (include/uapi/linux/if_ether.h)
	if r, own, err := parse(result, ifName, netns); err == nil && own >= 0 && r.Interfaces[own].Mtu >= least {
		return int64(r.Interfaces[own].Mtu)
	}
	var conf struct{ Plugins []json.RawMessage }
	_ = json.Unmarshal(list, &conf) // ADD has succeeded with it
	for _, raw := range slices.Backward(conf.Plugins) {
		var plugin struct{ MTU int64 }
		if err := json.Unmarshal(raw, &plugin); err == nil && plugin.MTU >= least {
			return plugin.MTU
		}
	}
	return 1500
}

// hardwareAddress spells a hardware address of a usual length as the kernel does.
func hardwareAddress(text string) (string, error) {
	if mac, err := net.ParseMAC(text); err == nil {
		return mac.String(), nil
	}
	const limit = resourceapi.NetworkDeviceDataHardwareAddressMaxLength
	if len(text) > limit {
		return "", fmt.Errorf("hardwareAddress is left out: it has %d bytes, at most %d are allowed", len(text), limit)
	}
	return text, nil
}

// parse returns a result, with the index of the pod's interface, -1 = it is not in the result. An interface
// without a sandbox is the host's. If none has exactly this netns, one of the name in any sandbox is taken:
// plugins spell the path in their own way. Before 0.3.0 a result has no interfaces; without addresses, which
// those versions forbid, it becomes an empty one.
func parse(raw json.RawMessage, ifName, netns string) (r *types100.Result, own int, err error) {
	result, err := create.CreateFromBytes(raw)
	if err != nil {
		return nil, 0, err
	}
	r, err = types100.NewResultFromResult(result)
	if err != nil && slices.Contains([]string{"0.1.0", "0.2.0"}, result.Version()) { // also without a version
		return &types100.Result{}, -1, nil
	} else if err != nil {
		return nil, 0, err
	}
	own = -1
	for n, i := range r.Interfaces {
		switch {
		case i == nil || i.Name != ifName || i.Sandbox == "":
		case i.Sandbox == netns:
			return r, n, nil
		case own < 0:
			own = n
		}
	}
	return r, own, nil
}

// canonical is the one spelling of an address that the API takes; false = it has none, such as
// ::ffff:10.0.0.1/64, which is of both families.
func canonical(n net.IPNet) (text string, ok bool) {
	address, ok := netip.AddrFromSlice(n.IP)
	ones, bits := n.Mask.Size()
	if !ok || bits == 0 {
		return "", false
	}
	address = address.Unmap()
	if address.Is4() && bits == net.IPv6len*8 {
		ones -= (net.IPv6len - net.IPv4len) * 8
	}
	prefix := netip.PrefixFrom(address, ones)
	return prefix.String(), prefix.IsValid()
}
