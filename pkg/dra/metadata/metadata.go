// Package metadata describes an attached network for two readers: the pod reads device attributes and network data
// in its metadata file (KEP-5304), and the API server stores the status of the allocated device (resource.k8s.io/v1,
// AllocatedDeviceStatus).
//
// The API refuses a whole object if one field exceeds its limit, so such a field is left out, with a warning.
package metadata

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	metadataapi "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Message returns an error as the message of a condition, which has at most 32 KiB of UTF-8.
func Message(text string) string {
	const limit = 32 << 10
	text = strings.ToValidUTF8(text, "\ufffd")
	return strings.ToValidUTF8(text[:min(len(text), limit)], "") // without half a rune
}

// Data returns the data field of the status: the CNI result, with the device under the key [view.Key]. It
// returns nil if there is neither. If the data exceeds the API's limit of 10 KiB, Data leaves out the result, and
// then the device. The warnings describe the missing parts.
//
// Data encodes the result again, because the API server does so before it checks the length.
func Data(result json.RawMessage, of view.Device) (data *runtime.RawExtension, warnings []string) {
	const limit = resourceapi.AllocatedDeviceStatusDataMaxLength
	device, whole := map[string]any{}, map[string]any{}
	if err := utiljson.Unmarshal(result, &whole); result != nil && (err != nil || whole == nil) {
		warnings = []string{"data is left out: the CNI result is not a JSON object"}
		whole = map[string]any{}
	}
	if of != (view.Device{}) {
		device[view.Key], whole[view.Key] = of, of
	}
	if len(whole) == 0 {
		return nil, warnings
	}
	raw, _ := json.Marshal(whole) // both have been decoded from JSON
	if len(raw) <= limit {
		return &runtime.RawExtension{Raw: raw}, warnings
	}
	why := fmt.Sprintf("it has %d bytes, at most %d are allowed", len(raw), limit)
	if raw, _ = json.Marshal(device); len(device) > 0 && len(raw) <= limit {
		return &runtime.RawExtension{Raw: raw}, []string{"the CNI result is left out of data: " + why}
	}
	return nil, []string{"data is left out: " + why}
}

// Prefix is the domain of the attributes that Kubernetes does not define.
const Prefix = "devinfo-cni.io/"

// The attributes that KubeVirt's network binding plugin for vhost-user reads, which have no domain
// (kubevirt/vhostuser-network-binding-plugin, pkg/domain).
const (
	VhostUserPath = "vhost-user-path" // path of the socket in the container
	MTU           = "mtu"             // an int, in bytes
)

// RDMADevices is the attribute with the names of all RDMA devices, a list of strings. Only metadata files contain it.
const RDMADevices = Prefix + "rdmaDevices"

// RDMAList returns the value of [RDMADevices] for names that are joined by commas.
func RDMAList(names string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValues: strings.Split(names, ",")}
}

// Attributes returns the attributes of a device, from its device information and sysfs. pciBusID,
// pcieRoot and numaNode describe the function behind the device and have the names that Kubernetes defines. The
// names of the other attributes begin with [Prefix]. vhost-user also has [VhostUserPath].
//
// A string has at most 64 bytes. warn is called with the reason for each attribute that is left out. [RDMADevices] is a
// list of names. ResourceSlices must not contain it, because API servers take lists only with the feature gate
// DRAListTypeAttributes. rdmaDevice has the same names, separated by commas as in the device information.
func Attributes(info *devinfo.Info, sys *sysfs.FS, warn func(string)) map[string]resourceapi.DeviceAttribute {
	a := attributes{sys, func(format string, args ...any) { warn(fmt.Sprintf(format, args...)) }, map[string]resourceapi.DeviceAttribute{}}
	a.set("type", string(info.Type))
	switch d := info.Device().(type) {
	case *devinfo.PCI:
		a.function(d.Address, d.PFAddress, d.Representor)
		a.set("rdmaDevice", d.RDMADevice)
		if d.RDMADevice != "" {
			a.to[RDMADevices] = RDMAList(d.RDMADevice)
		}
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

// set sets an attribute with the prefix. It ignores an empty value.
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

// function sets the attributes of a PCI function and of its PF.
func (a *attributes) function(address, pf, representor string) {
	if own, ok := a.address(string(deviceattribute.StandardDeviceAttributePCIBusID), address); ok {
		a.standard(deviceattribute.GetPCIBusIDAttribute(own.String()))
		if links, ok := a.sys.Files().(fs.ReadLinkFS); ok {
			a.standard(deviceattribute.GetPCIeRootAttributeByPCIBusID(own.String(), deviceattribute.WithFS(links)))
		}
		switch node, ok, err := a.sys.NUMANode(own); {
		case err != nil:
			a.warn("attribute %s is left out: %v", deviceattribute.StandardDeviceAttributeNUMANode, err)
		case ok: // without this check, the helper returns an error for a function without a NUMA node
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

// standard sets an attribute from a helper of Kubernetes. It gives no warning for a function that is missing in sysfs.
func (a *attributes) standard(attribute deviceattribute.DeviceAttribute, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		a.warn("an attribute is left out: %v", err)
	default:
		a.to[string(attribute.Name)] = attribute.Value
	}
}

// Decode decodes the text of a metadata file: a document for each version of the format.
func Decode(text []byte) (of metadataapi.DeviceMetadata, err error) {
	err = devicemetadata.DecodeMetadataFromStream(json.NewDecoder(bytes.NewReader(text)), &of)
	return of, err
}

// NextGeneration returns the text of a metadata file with a generation above that of the claim's former text. kubeletplugin
// begins with 1 whenever the kubelet prepares a claim again, and readers take a lower generation for older metadata. A
// former text that is damaged has no generation.
func NextGeneration(former, text []byte) ([]byte, error) {
	last, _ := Decode(former) // a damaged one has no UID
	now, err := Decode(text)
	if err != nil || last.UID != now.UID || last.Generation < now.Generation {
		return text, err
	}
	var raised bytes.Buffer
	from, to := json.NewDecoder(bytes.NewReader(text)), json.NewEncoder(&raised)
	for from.UseNumber(); from.More(); {
		document := map[string]any{}
		err := errors.Join(from.Decode(&document), unstructured.SetNestedField(document, last.Generation+1, "metadata", "generation"), to.Encode(document))
		if err != nil {
			return nil, err
		}
	}
	return raised.Bytes(), nil
}
