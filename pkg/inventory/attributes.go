package inventory

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// Domain is the domain of this project's own attributes.
const Domain = "devinfo-cni.io"

// The attributes of a device. Which of them a device has depends on its kind and on what
// the kernel says: see [Table].
const (
	PCIBusID = deviceattribute.StandardDeviceAttributePCIBusID
	PCIeRoot = deviceattribute.StandardDeviceAttributePCIeRoot
	NUMANode = deviceattribute.StandardDeviceAttributeNUMANode

	AttrKind        resourceapi.QualifiedName = Domain + "/kind"
	AttrIfName      resourceapi.QualifiedName = Domain + "/ifName"
	AttrPFName      resourceapi.QualifiedName = Domain + "/pfName"
	AttrPFPCIBusID  resourceapi.QualifiedName = Domain + "/pfPCIBusID"
	AttrVFIndex     resourceapi.QualifiedName = Domain + "/vfIndex"
	AttrDriver      resourceapi.QualifiedName = Domain + "/driver"
	AttrVendor      resourceapi.QualifiedName = Domain + "/vendor"
	AttrDevice      resourceapi.QualifiedName = Domain + "/device"
	AttrEswitchMode resourceapi.QualifiedName = Domain + "/eswitchMode"
	AttrRepresentor resourceapi.QualifiedName = Domain + "/representor"
	AttrLinkType    resourceapi.QualifiedName = Domain + "/linkType"
	AttrSpeed       resourceapi.QualifiedName = Domain + "/speed"
	AttrMTU         resourceapi.QualifiedName = Domain + "/mtu"
	AttrRDMADevice  resourceapi.QualifiedName = Domain + "/rdmaDevice"
	AttrRDMACapable resourceapi.QualifiedName = Domain + "/rdmaCapable"
	AttrVDPADriver  resourceapi.QualifiedName = Domain + "/vdpaDriver"

	// DeviceID and ResourceName are read by Multus (k8snetworkplumbingwg/multus-cni,
	// pkg/draclient).
	DeviceID     resourceapi.QualifiedName = "k8s.cni.cncf.io/deviceID"
	ResourceName resourceapi.QualifiedName = "k8s.cni.cncf.io/resourceName"
)

// The capacities of a shared device.
const (
	Attachments resourceapi.QualifiedName = "attachments"
	Bandwidth   resourceapi.QualifiedName = "bandwidth" // bit/s
)

// The taints that [Slices] sets. Their effect is NoSchedule: running pods go on.
const (
	TaintNoCarrier  = Domain + "/no-carrier"  // the physical function is up, and has no carrier
	TaintGone       = Domain + "/gone"        // a claim holds a device that the node has lost
	TaintUnknown    = Domain + "/unknown"     // whether somebody has it is not known
	TaintNotOffered = Domain + "/not-offered" // claims hold a device that no other may have
)

// Type is that of an attribute's value.
type Type string

// The types in use; ResourceSlices have more.
const (
	String Type = "string"
	Int    Type = "int"
	Bool   Type = "bool"
)

// An Attribute is a line of the table of attributes.
type Attribute struct {
	Name  resourceapi.QualifiedName
	Type  Type
	Of    string // the kinds that may have it
	Means string
}

// Table describes all attributes except those that rules give.
func Table() []Attribute {
	const function = "pf, vf, nic on PCI"
	return []Attribute{
		{PCIBusID, String, "pf, vf, nic on PCI; vdpa on a VF", "PCI address, lower case; not with a domain of five digits, and not of an SF, which has none"},
		{PCIeRoot, String, "whatever is on a PCI function", "root complex above the function, `pci0000:3a`"},
		{NUMANode, Int, "whatever is on a PCI function", "NUMA node of the function; absent where the kernel says -1"},
		{AttrKind, String, "all", "`pf`, `vf`, `sf`, `vdpa`, `nic`, `bond`, `bridge` or `ovs`"},
		{AttrIfName, String, "all", "interface on the node; absent of a function without one, such as a VF on vfio-pci"},
		{AttrPFName, String, "vf, sf, vdpa", "interface of the PF"},
		{AttrPFPCIBusID, String, "vf, sf, vdpa", "PCI address of the PF"},
		{AttrVFIndex, Int, "vf; vdpa on a VF", "number of the VF on its PF, from 0"},
		{AttrDriver, String, function, "driver of the function, `mlx5_core`"},
		{AttrVendor, String, "whatever is on a PCI function", "PCI vendor ID of the function, `15b3`"},
		{AttrDevice, String, "whatever is on a PCI function", "PCI device ID of the function, `101e`"},
		{AttrEswitchMode, String, "pf; vf, sf, vdpa on one", "`legacy` or `switchdev`"},
		{AttrRepresentor, String, "vf, sf in switchdev mode", "interface that stands for it on the switch"},
		{AttrLinkType, String, "what has an interface, or RDMA alone", "`ether` or `infiniband`"},
		{AttrSpeed, Int, "what has an interface", "Mbit/s; absent without carrier"},
		{AttrMTU, Int, "what has an interface", "bytes"},
		{AttrRDMADevice, String, "pf, vf, sf, nic", "RDMA device, `mlx5_2`; several are joined by commas"},
		{AttrRDMACapable, Bool, "pf, vf, sf, nic", "whether there is an RDMA device, be it in another network namespace"},
		{AttrVDPADriver, String, "vdpa", "`vhost` (vhost_vdpa) or `virtio` (virtio_vdpa)"},
		{DeviceID, String, "where the rule gives a resourceName", "PCI address or auxiliary name, for Multus"},
		{ResourceName, String, "where the rule gives a resourceName", "as in the annotation of the NetworkAttachmentDefinition"},
	}
}
