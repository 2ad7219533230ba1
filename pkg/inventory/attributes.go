package inventory

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// Domain is the domain of this project's own attributes.
const Domain = "devinfo-cni.io"

// The attributes of a device. Which of them a device has depends on its kind and on what
// the kernel says: see docs/dra/inventory.md.
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

// AttributeNames are all attributes except those that rules give. docs/dra/inventory.md says what each means.
func AttributeNames() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{
		PCIBusID, PCIeRoot, NUMANode, AttrKind, AttrIfName, AttrPFName, AttrPFPCIBusID, AttrVFIndex, AttrDriver, AttrVendor, AttrDevice,
		AttrEswitchMode, AttrRepresentor, AttrLinkType, AttrSpeed, AttrMTU, AttrRDMADevice, AttrRDMACapable, AttrVDPADriver, DeviceID, ResourceName,
	}
}
