package inventory

import (
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
)

// Domain is the domain of this project's own attributes.
const Domain = "devinfo-cni.io"

// The attributes of a device: see docs/dra/inventory.md.
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
	TaintUnknown    = Domain + "/unknown"     // it may be allocated outside DRA
	TaintNotOffered = Domain + "/not-offered" // claims hold a device that no other claim may get
)

// AttributeNames are all attributes except those that rules give. docs/dra/inventory.md says what each means.
func AttributeNames() []resourceapi.QualifiedName {
	return []resourceapi.QualifiedName{
		PCIBusID, PCIeRoot, NUMANode, AttrKind, AttrIfName, AttrPFName, AttrPFPCIBusID, AttrVFIndex, AttrDriver, AttrVendor, AttrDevice,
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

// attributes reads those that a rule gives.
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
