// Package inventory decides which of a node's network devices are offered by Dynamic
// Resource Allocation, and how.
//
//	host  := Live(sys)                       // or Captured(file)
//	list  := Read(host)                      // all devices, with their attributes
//	rules := ParseRules(configuration)       // the devices that the administrator offers
//	all   := Decide(list, rules, situation)  // each device: offered, or why not
//	pool  := Slices(all, held, last)         // the content of the ResourceSlices
//
// A device that a claim holds stays published as it last was, so that pods that start and end do not
// change the ResourceSlices.
package inventory

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
)

// Pods can share a NIC or a master; the latter no pod can have to itself.
func isNIC(k hostdev.Kind) bool { return k == hostdev.PF || k == hostdev.NIC }
func isMaster(k hostdev.Kind) bool {
	return k == hostdev.Bond || k == hostdev.Bridge || k == hostdev.OVS
}

// Device is a network device of the host.
type Device struct {
	Name string // in the ResourceSlice: a DNS label, the same after a reboot
	hostdev.Ref
	On     string // the name of the device that it is on: a VF's PF, an SF's function, a vDPA device's VF; "" = none
	PFName string // the interface of its PF
	Driver string // of a function; "" = unbound

	Attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

	Port      string // the master that its interface is a port of; "" = none
	Uplink    string // why the host needs it; "" = it does not
	HostUse   string // what the host uses it for otherwise; "" = for nothing
	NoCarrier bool   // it, or its PF, is up and has no carrier
	Verbs     bool   // it has RDMA devices here, and no interface in any network namespace
	Closed    bool   // of Verbs: a pod's network namespace cannot open the RDMA devices
}

// ID is what CNI plugins know the device by: a PCI address, which for a vDPA device on a VF
// is the VF's; an auxiliary name; "" if there is neither.
func (d *Device) ID() string { return cmp.Or(d.Aux, d.PCI, d.text(PCIBusID)) }

func (d *Device) text(name resourceapi.QualifiedName) string {
	return Text(resourceapi.Device{Attributes: d.Attributes}, name)
}

// Text returns an attribute of a device; "" = it has none that is a text.
func Text(d resourceapi.Device, name resourceapi.QualifiedName) string {
	if v := d.Attributes[name].StringValue; v != nil {
		return *v
	}
	return ""
}

// moved reports whether the device has neither an interface here nor a driver that needs none. Its interface
// may be in another network namespace.
func (d *Device) moved() bool {
	withoutInterface := d.Kind == hostdev.VDPA || d.Verbs && !d.Closed ||
		strings.Contains(d.Driver, "vfio") || d.Driver == "uio_pci_generic" || d.Driver == "igb_uio"
	return d.IfName == "" && !withoutInterface
}

// UsedByHost says why it is not for pods, whoever has it; "" = it may be.
func (d *Device) UsedByHost() string {
	switch {
	case d.Port != "":
		return fmt.Sprintf("%s is a port of %s", d.IfName, d.Port)
	case d.Uplink != "":
		return "the host needs it: " + d.Uplink
	}
	return ""
}

// set gives the device an attribute. What an attribute cannot hold is left out: the API
// server would reject the whole slice for a longer text.
func (d *Device) set(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= resourceapi.DeviceAttributeMaxValueLength {
		d.Attributes[name] = resourceapi.DeviceAttribute{StringValue: &value}
	}
}

func (d *Device) setInt(name resourceapi.QualifiedName, value int) {
	d.Attributes[name] = resourceapi.DeviceAttribute{IntValue: new(int64(value))}
}

// functionName names the device of a PCI function: "pci-0000-8a-00-2".
func functionName(address string) string {
	return "pci-" + strings.NewReplacer(":", "-", ".", "-").Replace(address)
}

// spell makes a DNS label of a kernel's name, behind the prefix "net", "aux" or "vdpa". Different names have
// different labels. A name that is a DNS label stays as it is: "net-br-ex". In any other, behind an "x", each
// byte that a label cannot hold is two hexadecimal digits behind a "-", and "-" is doubled: "netx-bond0-2e100"
// is bond0.100. The end of a label that is too long is replaced by a hash of the name.
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

// Busy returns why a device of the host cannot be unbound from its driver now; "" = it can. It is stricter
// than [Decide], because a plugin that moves an interface does not destroy it.
func Busy(h Host, name string) (string, error) {
	devices, _, err := Read(h)
	if err != nil {
		return "", err
	}
	var on []string
	for _, d := range devices {
		if d.On == name {
			on = append(on, d.Name)
		}
	}
	n := slices.IndexFunc(devices, func(d Device) bool { return d.Name == name })
	if n < 0 {
		return "the node has lost it", nil
	}
	d := devices[n]
	upper := slices.IndexFunc(h.Links, func(l link.InterfaceRecord) bool { return d.IfName != "" && l.Link == d.IfName })
	switch {
	case d.UsedByHost() != "":
		return d.UsedByHost(), nil
	case len(on) > 0:
		return fmt.Sprintf("it has %s on it: they would lose their parent", count(on)), nil
	case d.moved() && d.Driver != "":
		return noInterface, nil
	case upper >= 0:
		return fmt.Sprintf("%s is on %s", h.Links[upper].Name, d.IfName), nil
	case d.IfName != "" && d.HostUse != "":
		return "the host uses it: " + d.HostUse, nil
	}
	return "", nil
}

func count(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%d devices", len(names))
}

// Domain is the domain of this project's own attributes.
const Domain = "devinfo-cni.io"

// The attributes of a device: see docs/dra/rules.md.
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
	TaintNoCarrier         = Domain + "/no-carrier"         // the physical function is up, and has no carrier
	TaintGone              = Domain + "/gone"               // a claim holds a device that the node has lost
	TaintAllocationUnknown = Domain + "/allocation-unknown" // it may be allocated outside DRA
	TaintNotOffered        = Domain + "/not-offered"        // claims hold a device that no other claim may get
)

// AttributeNames are all attributes except those that rules give. docs/dra/rules.md says what each means.
func AttributeNames() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{
		PCIBusID, PCIeRoot, NUMANode, AttrKind, AttrIfName, AttrPFName, AttrPFPCIBusID, AttrVFIndex, AttrDriver, AttrPCIVendorID, AttrPCIDeviceID,
		AttrEswitchMode, AttrRepresentor, AttrLinkType, AttrSpeed, AttrMTU, AttrRDMADevice, AttrRDMACapable, AttrVDPADriver, DeviceID, ResourceName,
	}
}

// alwaysPublished are the attributes that the driver itself needs.
var alwaysPublished = []resourceapi.QualifiedName{AttrKind, AttrIfName, PCIBusID, AttrPFPCIBusID, AttrVFIndex}

// published reads the names of attributes of [AttributeNames]; those of [Domain] may be without it.
func published(names []string) (list []resourceapi.QualifiedName, err error) {
	if names == nil {
		return nil, nil
	}
	var known []string
	for _, name := range AttributeNames() {
		known = append(known, strings.TrimPrefix(string(name), Domain+"/"))
	}
	list = slices.Clone(alwaysPublished)
	for n, name := range names {
		at := slices.Index(known, strings.TrimPrefix(name, Domain+"/"))
		if at < 0 {
			return nil, fmt.Errorf("publish[%d]: there is no attribute %q; did you mean %s?", n, name, config.Nearest(strings.TrimPrefix(name, Domain+"/"), known))
		}
		list = append(list, AttributeNames()[at])
	}
	return list, nil
}

func attributes(raw map[string]json.RawMessage) (map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, error) {
	if len(raw) > maxAttributes {
		return nil, fmt.Errorf("attributes: there are %d, at most %d are allowed", len(raw), maxAttributes)
	}
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		name, err := attributeName(key)
		if _, again := all[name]; again && err == nil {
			err = errors.New("it is given twice, with and without its domain")
		}
		if err == nil {
			all[name], err = attributeValue(raw[key])
		}
		if err != nil {
			return nil, fmt.Errorf("attributes[%q]: %w", key, err)
		}
	}
	return all, nil
}

// attributeName gives a name its domain. Names that are not the administrator's are refused.
func attributeName(key string) (resourceapi.QualifiedName, error) {
	domain, id, qualified := strings.Cut(key, "/")
	if !qualified {
		domain, id = Domain, key
	}
	name := resourceapi.QualifiedName(domain + "/" + id)
	switch {
	case len(id) > resourceapi.DeviceMaxIDLength || len(validation.IsCIdentifier(id)) > 0:
		return "", fmt.Errorf("%q is not a C identifier of at most %d characters; write letters, digits and _", id, resourceapi.DeviceMaxIDLength)
	case len(domain) > resourceapi.DeviceMaxDomainLength || len(validation.IsDNS1123Subdomain(domain)) > 0:
		return "", fmt.Errorf("%q is not a domain of at most %d characters", domain, resourceapi.DeviceMaxDomainLength)
	case domain == "k8s.io" || strings.HasSuffix(domain, ".kubernetes.io") || domain == "k8s.cni.cncf.io":
		return "", fmt.Errorf("the domain %s is not yours; write one that is, or none", domain)
	case slices.Contains(AttributeNames(), name):
		return "", errors.New("the name is reserved for what the kernel says; choose another one")
	}
	return name, nil
}

func attributeValue(raw json.RawMessage) (resourceapi.DeviceAttribute, error) {
	const limit = resourceapi.DeviceAttributeMaxValueLength
	var text, number, yes = new(string), new(int64), new(bool)
	switch {
	case string(raw) == "null":
	case json.Unmarshal(raw, text) == nil:
		if len(*text) > limit {
			return resourceapi.DeviceAttribute{}, fmt.Errorf("%q has %d bytes, at most %d are allowed", *text, len(*text), limit)
		}
		return resourceapi.DeviceAttribute{StringValue: text}, nil
	case json.Unmarshal(raw, number) == nil:
		return resourceapi.DeviceAttribute{IntValue: number}, nil
	case json.Unmarshal(raw, yes) == nil:
		return resourceapi.DeviceAttribute{BoolValue: yes}, nil
	}
	return resourceapi.DeviceAttribute{}, fmt.Errorf("%s is not a string, integer or boolean; write it in quotes", raw)
}
