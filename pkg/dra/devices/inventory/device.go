// Package inventory decides which network devices of a node are offered by Dynamic Resource Allocation, and how.
//
//	host  := Live(sys)                       // or Captured(file)
//	list  := Read(host)                      // all devices, with their attributes
//	rules := ParseRules(configuration)       // the devices that the administrator offers
//	all   := Decide(list, rules, input)      // each device: offered, or why not
//	pool  := Slices(Pool(all, held))         // the content of the ResourceSlices
//
// A device that a claim holds keeps its published state, so that the start and end of pods do not change the
// ResourceSlices.
package inventory

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Pods can share a NIC or a master (bond, bridge or OVS bridge). A master cannot be exclusive.
func isNIC(k hostdev.Kind) bool { return k == hostdev.PF || k == hostdev.NIC }
func isMaster(k hostdev.Kind) bool {
	return k == hostdev.Bond || k == hostdev.Bridge || k == hostdev.OVS
}

type Device struct {
	Name string // name in the ResourceSlice: a DNS label, the same after a reboot
	hostdev.Ref
	On     string   // name of its parent: the PF of a VF, the function of an SF, the VF of a vDPA device; "" = none
	Also   []string // altnames of its interface, while that is here
	PFAlso []string // altnames of the PF's interface
	Driver string   // driver of a function; "" = unbound

	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

	Unread     error  // why attributes are missing, so that pods cannot have it now; nil = none is
	Port       string // the master whose port its interface is; "" = none
	Uplink     string // why the host needs it; "" = the host does not need it
	Advertised bool   // only a router advertisement makes the host need it
	OtherPort  string // how the host uses another port of the function; "" = it does not
	HostUse    string // other uses of the device by the host; "" = none
	Unusable   string // why the next pod could not use it: see [settings.Usable]; "" = it could, or that is unknown
	NoCarrier  bool   // the device or its PF is up but has no carrier
	Verbs      bool   // it has RDMA devices here, and no interface in any network namespace
	Closed     bool   // only with Verbs: a pod's network namespace cannot open the RDMA devices
	RDMAOn     string // PCI address of another function that has its RDMA devices; "" = none
	Serves     string // the device, or the interface elsewhere, to which its RDMA devices belong; "" = itself

	found *hostdev.Device // only during Read; nil for a software device, and for each port of a device after the first
}

// ID returns the device ID for CNI plugins: the auxiliary name, or else the PCI address. A vDPA device on a VF has the
// address of the VF. ID returns "" if the device has neither.
func (d *Device) ID() string { return cmp.Or(d.Aux, d.PCI, Text(d.Attributes, PCIBusID)) }

// LeaseID returns the ID under which the journal leases the device: that of its function for each port of a function,
// because the ports share its RDMA devices and device nodes. It returns "" if the journal knows no such device.
func (d *Device) LeaseID() string { return cmp.Or(d.VDPA, d.ID(), d.PortOf) }

// hardware returns the name of the device that a pod has as soon as it has this one: the function of a port.
func (d *Device) hardware() string {
	if d.PortOf != "" {
		return functionName(d.PortOf)
	}
	return d.Name
}

// Text returns a string attribute of a device, or "" if the device does not have it.
func Text(attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, name resourceapi.QualifiedName) string {
	if v := attributes[name].StringValue; v != nil {
		return *v
	}
	return ""
}

// moved reports whether the device needs an interface but has none here. The interface may be in another network
// namespace.
func (d *Device) moved() bool {
	withoutInterface := d.Kind == hostdev.VDPA || d.Verbs && !d.Closed || sysfs.OnVFIO(d.Driver) || sysfs.OnUIO(d.Driver)
	return d.IfName == "" && !withoutInterface
}

// UsedByHost returns why the device cannot be given to pods, or "" if it can.
func (d *Device) UsedByHost() string {
	switch {
	case d.Port != "":
		return fmt.Sprintf("%s is a port of %s", d.IfName, d.Port)
	case d.Uplink != "":
		return "the host needs it: " + d.Uplink
	case d.OtherPort != "":
		return "its other port is in use: " + d.OtherPort
	}
	return ""
}

// set sets a string attribute. It ignores values that are too long, because the API server would reject the whole
// slice.
func (d *Device) set(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength {
		d.Attributes[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

func (d *Device) setInt(name resourceapi.QualifiedName, value int) {
	d.Attributes[name] = resourceapi.DeviceAttribute{IntValue: new(int64(value))}
}

// functionName returns the device name of a PCI function, such as "pci-0000-8a-00-2".
func functionName(address string) string {
	return "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(address)
}

// spell converts a name of the kernel to a DNS label with prefix "net", "aux", "vdpa" or "dev". Different names get
// different labels. A name that is a valid label is kept: "net-br-ex". In other names, "x" is added to the prefix,
// each invalid byte becomes "-" and two hexadecimal digits, and "-" is doubled: bond0.100 becomes
// "netx-bond0-2e100". The end of a label that is too long is replaced by a hash of the name.
func spell(prefix, name string) string {
	const most, digits = validation.DNS1123LabelMaxLength, 20
	if plain := prefix + "-" + name; len(validation.IsDNS1123Label(name)) == 0 && len(plain) <= most {
		return plain
	}
	label := prefix + "x-"
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			label += string(c)
		case c == '-' && i < len(name)-1:
			label += "--"
		default:
			label += fmt.Sprintf("-%02x", c)
		}
	}
	if len(label) <= most {
		return label
	}
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%x", strings.TrimRight(label[:most-digits-1], "-"), sum[:digits/2])
}

// Find returns the device of that name. The result has no name if the host does not have it.
func Find(h Host, name string) (d Device, err error) {
	devices, _, err := Read(h)
	if at := slices.IndexFunc(devices, func(d Device) bool { return d.Name == name }); at >= 0 {
		d = devices[at]
	}
	return d, err
}

// Busy returns why a device of the host cannot be unbound from its driver now, or "" if it can. Busy is stricter
// than [Decide], because moving an interface into a pod does not destroy it, but unbinding does.
func Busy(h Host, name string) (string, error) {
	d, err := Find(h, name)
	upper := slices.IndexFunc(h.Links, func(l listing.Interface) bool { return d.IfName != "" && l.Link == d.IfName })
	switch {
	case err != nil || d.Unread != nil:
		return "", cmp.Or(err, d.Unread)
	case d.Name == "":
		return "the node has lost it", nil
	case d.UsedByHost() != "":
		return d.UsedByHost(), nil
	case d.moved() && d.Driver != "":
		return "it has no interface in the host network namespace; it is probably in another one", nil
	case upper >= 0:
		return fmt.Sprintf("%s is on %s", h.Links[upper].Name, d.IfName), nil
	case d.HostUse != "":
		return "the host uses it: " + d.HostUse, nil
	}
	address, err := pci.Parse(d.PCI)
	if err != nil {
		return "", nil // not a function, so it has no ports
	}
	fn, ok, err := h.Sys.PCI(address)
	if err != nil || !ok {
		return "", err
	}
	return hostdev.Carries(h.Sys, fn)
}

func count(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d devices", len(names))
}

// Domain is the domain of the attributes that this driver defines.
const Domain = "devinfo-cni.io"

// The attributes of a device: see docs/dra/reference.md.
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
	AttrPCIVendorID resourceapi.QualifiedName = Domain + "/pciVendorID"
	AttrPCIDeviceID resourceapi.QualifiedName = Domain + "/pciDeviceID"
	AttrEswitchMode resourceapi.QualifiedName = Domain + "/eswitchMode"
	AttrRepresentor resourceapi.QualifiedName = Domain + "/representor"
	AttrLinkType    resourceapi.QualifiedName = Domain + "/linkType"
	AttrSpeed       resourceapi.QualifiedName = Domain + "/speed"
	AttrMTU         resourceapi.QualifiedName = Domain + "/mtu"
	AttrRDMADevice  resourceapi.QualifiedName = Domain + "/rdmaDevice"
	AttrRDMACapable resourceapi.QualifiedName = Domain + "/rdmaCapable"
	AttrVDPADriver  resourceapi.QualifiedName = Domain + "/vdpaDriver"

	// Multus reads DeviceID and ResourceName (k8snetworkplumbingwg/multus-cni, pkg/draclient).
	DeviceID     resourceapi.QualifiedName = "k8s.cni.cncf.io/deviceID"
	ResourceName resourceapi.QualifiedName = "k8s.cni.cncf.io/resourceName"
)

// The capacities of a shared device.
const (
	Attachments resourceapi.QualifiedName = "attachments"
	Bandwidth   resourceapi.QualifiedName = "bandwidth" // bit/s
)

// The taints that [Slices] sets. Their effect is NoSchedule, so running pods are not evicted.
const (
	TaintNoCarrier         = Domain + "/no-carrier"         // the device or its PF is up, but has no carrier
	TaintGone              = Domain + "/gone"               // a claim holds the device, but the node has lost it
	TaintAllocationUnknown = Domain + "/allocation-unknown" // the device may be allocated outside DRA
	TaintNotOffered        = Domain + "/not-offered"        // claims hold the device, but it is not offered to other claims
)

// AttributeNames returns all attributes except those of rules. docs/dra/reference.md describes them.
func AttributeNames() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{
		PCIBusID, PCIeRoot, NUMANode, AttrKind, AttrIfName, AttrPFName, AttrPFPCIBusID, AttrVFIndex, AttrDriver, AttrPCIVendorID, AttrPCIDeviceID,
		AttrEswitchMode, AttrRepresentor, AttrLinkType, AttrSpeed, AttrMTU, AttrRDMADevice, AttrRDMACapable, AttrVDPADriver, DeviceID, ResourceName,
	}
}
