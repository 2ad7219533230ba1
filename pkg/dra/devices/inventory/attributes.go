package inventory

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/sysfs"
)

// hardware sets the attributes of a device's RDMA devices, function and PF.
func (r *reader) hardware(d *Device) error {
	if d.Kind != hostdev.VDPA {
		rdma := d.found.RDMA
		d.RDMAOn = d.found.RDMAOn
		if of := d.found.Serves; of != nil {
			d.Serves = nameOf(of)
		} else if d.found.BoundTo != "" {
			d.Serves = "the interface " + d.found.BoundTo + " in another network namespace"
		}
		d.set(AttrRDMADevice, strings.Join(rdma.Devices, ","))
		d.Attributes[AttrRDMACapable] = resourceapi.DeviceAttribute{BoolValue: new(len(slices.Concat(rdma.Devices, rdma.Nodes)) > 0)}
		if d.found.OnlyRDMA() {
			shared, err := r.host.Sys.IsRDMAShared()
			if err != nil {
				return err
			}
			d.Verbs, d.Closed = true, !shared
			d.set(AttrLinkType, map[string]string{"Ethernet": "ether", "InfiniBand": "infiniband"}[rdma.LinkLayer])
		}
	}
	fn, index := d.found.Function, d.found.Number
	if fn == nil {
		return nil
	}
	vendor, product, err := r.host.Sys.IDs(fn.Address)
	node, onNode, nodeErr := r.host.Sys.NUMANode(fn.Address)
	if err := cmp.Or(err, nodeErr); err != nil {
		return err
	}
	d.set(AttrPCIVendorID, strings.TrimPrefix(vendor, "0x"))
	d.set(AttrPCIDeviceID, strings.TrimPrefix(product, "0x"))
	if onNode {
		d.standard(deviceattribute.GetNUMANodeAttribute(node, deviceattribute.ScalarAttribute))
	}
	pf := fn.Address
	if fn.PF != nil {
		pf = *fn.PF
	}
	onFunction := d.Kind == hostdev.VDPA && d.Aux == ""
	if d.PCI != "" || onFunction {
		d.standard(deviceattribute.GetPCIBusIDAttribute(fn.Address.String()))
	}
	if onFunction && fn.PF != nil {
		n, ok, err := r.host.Sys.VFIndex(pf, fn.Address)
		if err != nil {
			return err
		}
		if ok {
			index = &n
		}
	}
	if index != nil && d.Kind != hostdev.SF {
		d.setInt(AttrVFIndex, *index)
	}
	return r.above(d, pf.String())
}

// above sets the root complex of a device and its PF's eswitch mode. If the device is not the PF itself, it also sets
// the PF's interface name, PCI address and carrier, and the device's representor.
func (r *reader) above(d *Device, address string) error {
	if links, ok := r.host.Sys.Files().(fs.ReadLinkFS); ok {
		root, err := deviceattribute.GetPCIeRootAttributeByPCIBusID(address, deviceattribute.WithFS(links))
		if errors.As(err, new(*fs.PathError)) && !sysfs.Absent(err) { // all others refuse the address, such as a domain of five digits
			return err
		}
		d.standard(root, nil)
	}
	for pf := d.found; pf != nil; pf = pf.Parent {
		if pf.PCI != address {
			continue
		}
		d.set(AttrEswitchMode, pf.Eswitch)
		if pf == d.found {
			break
		}
		d.PFAlso, d.NoCarrier = r.links[pf.IfName].AltNames, r.withoutCarrier(pf.IfName)
		d.set(AttrPFName, pf.IfName)
		d.set(AttrPFPCIBusID, pf.PCI)
		d.set(AttrRepresentor, d.found.Representor)
	}
	return nil
}

// standard sets an attribute from a helper of Kubernetes. A value that the helper refuses, such as a PCI domain of
// five digits, is left out.
func (d *Device) standard(a deviceattribute.DeviceAttribute, _ error) {
	if a.Name != "" {
		d.Attributes[a.Name] = a.Value
	}
}

// interfaceOf sets what the interface of a device says; nothing if the device has none here.
func (r *reader) interfaceOf(d *Device) {
	l := r.links[d.IfName]
	d.Port, d.Also = l.Master, l.AltNames
	d.NoCarrier = d.NoCarrier || (isNIC(d.Kind) || d.Kind == hostdev.Bond) && r.withoutCarrier(d.IfName)
	d.set(AttrIfName, d.IfName)
	if l.MTU > 0 {
		d.setInt(AttrMTU, l.MTU)
	}
	medium, err := r.host.Sys.Medium(d.IfName)
	if err != nil {
		r.warnings = append(r.warnings, err.Error())
		return
	}
	if medium.Type != nil {
		d.set(AttrLinkType, map[int]string{1: "ether", 32: "infiniband"}[*medium.Type])
	}
	if medium.Speed != nil && *medium.Speed > 0 {
		d.setInt(AttrSpeed, *medium.Speed)
	}
}

// withoutCarrier reports whether an interface is up but has no carrier.
func (r *reader) withoutCarrier(name string) bool {
	l := r.links[name]
	return slices.Contains(l.Flags, "UP") && slices.Contains(l.Flags, "NO-CARRIER")
}

const (
	ovsSystem = "ovs-system"  // master of all ports of Open vSwitch (net/openvswitch/vport-netdev.c)
	kindOVS   = "openvswitch" // kind of its bridges and its other internal ports
)

// downwards adds to the interfaces in a map all interfaces below them: ports of bonds and bridges, lower interfaces
// of VLANs, and so on. The result has the reason for the use of each interface.
//
// The kernel does not show to which bridge a port of Open vSwitch belongs. If a bridge of Open vSwitch is used,
// downwards therefore adds all ports.
func (r *reader) downwards(of map[string]string) map[string]string {
	why, queue := map[string]string{}, slices.Sorted(maps.Keys(of))
	for _, name := range queue {
		why[name] = name + " " + of[name]
	}
	for len(queue) > 0 {
		upper := r.links[queue[0]]
		queue = queue[1:]
		below := func(name, how string) {
			if name != "" && why[name] == "" {
				why[name] = fmt.Sprintf("%s %s %s, and %s", name, how, upper.Name, why[upper.Name])
				queue = append(queue, name)
			}
		}
		if upper.Info.Kind != "veth" { // the link of a veth is its peer
			below(upper.Link, "is below")
		}
		for _, l := range r.host.Links {
			if l.Master != "" && (l.Master == upper.Name || l.Master == ovsSystem && upper.Info.Kind == kindOVS) {
				below(l.Name, "is a port of")
			}
		}
	}
	return why
}

// published parses names of [AttributeNames]. The domain [Domain] may be omitted.
func published(names []string) (list []resourceapi.QualifiedName, err error) {
	if names == nil {
		return nil, nil
	}
	var known []string
	for _, name := range AttributeNames() {
		known = append(known, strings.TrimPrefix(string(name), Domain+"/"))
	}
	list = []resourceapi.QualifiedName{AttrKind, AttrIfName, PCIBusID, AttrPFPCIBusID, AttrVFIndex} // the driver needs these itself
	for n, name := range names {
		at := slices.Index(known, strings.TrimPrefix(name, Domain+"/"))
		if at < 0 {
			return nil, fmt.Errorf("publish[%d]: unknown attribute %q; %s", n, name, config.Suggest(strings.TrimPrefix(name, Domain+"/"), known))
		}
		list = append(list, AttributeNames()[at])
	}
	return list, nil
}

func attributes(raw map[string]json.RawMessage) (map[resourceapi.QualifiedName]resourceapi.DeviceAttribute, error) {
	if len(raw) > maxAttributes {
		return nil, fmt.Errorf("attributes: the rule has %d attributes, at most %d are allowed", len(raw), maxAttributes)
	}
	all := map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	for _, key := range slices.Sorted(maps.Keys(raw)) {
		name, err := attributeName(key)
		if _, again := all[name]; again && err == nil {
			err = errors.New("it occurs twice, with and without its domain")
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

// attributeName adds the default domain to a name. It refuses names that the administrator must not define.
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
		return "", fmt.Errorf("the domain %s is reserved; use your own domain, or none", domain)
	case slices.Contains(AttributeNames(), name):
		return "", errors.New("the driver sets this attribute itself; choose a different name")
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
