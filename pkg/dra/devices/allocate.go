package devices

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/binding"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/host/link"
)

// Allocation contains the node's devices that are allocated to a claim, by name.
type Allocation map[string]*state.NodeDevice

// Allocated returns the node's devices that are allocated to a claim. It surveys the node if a device is missing in
// record, which may be nil. An error that a retry cannot remove is a [*cniconfig.Refusal].
func (n *Node) Allocated(ctx context.Context, claim *resourceapi.ResourceClaim, record *state.Claim) (Allocation, error) {
	own := Allocation{}
	if claim.Status.Allocation == nil {
		return own, nil
	}
	recorded := Allocation{}
	if record != nil {
		for _, at := range record.Attachments {
			recorded[at.Pool+"/"+at.Device] = at.NodeDevice
		}
	}
	var unknown []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver != n.Driver || r.Device == SoftwareDevice {
			continue
		}
		if known := recorded[r.Pool+"/"+r.Device]; known != nil {
			own[r.Device] = known
		} else {
			unknown = append(unknown, r)
		}
	}
	s, err := n.surveyFor(ctx, claim.UID, unknown)
	if err != nil {
		return own, fmt.Errorf("the node's devices: %w", err)
	}
	for _, r := range unknown {
		d, why := s.decisions[r.Device], ""
		switch {
		case n.Inventory == nil:
			why = "this node offers no devices of its own"
		case d.Device.Name == "":
			why = "this node has no device of that name"
		case d.Why != "":
			why = "this node does not offer it: " + d.Why
		}
		if why != "" {
			return own, &cniconfig.Refusal{
				Request: r.Request, Rule: fmt.Sprintf("device %s is allocated, but %s", r.Device, why),
				Remedy: "delete the pod, so that it gets a different device, or correct the rules of the node's devices",
			}
		}
		own[r.Device] = nodeDevice(d, s.published[r.Device])
	}
	return own, nil
}

// surveyFor returns the last survey if it still offers all the devices. Otherwise it surveys the node. The last survey
// is at most [Inventory].Poll old, and a new survey of a thousand VFs takes longer than the rest of Prepare. For
// an exclusive device, surveyFor returns an error while the devices allocated outside DRA are unknown.
func (n *Node) surveyFor(ctx context.Context, claim types.UID, results []resourceapi.DeviceRequestAllocationResult) (survey, error) {
	s := *n.last.Load()
	now := inventory.DecideInput{Ours: inventory.Published{}}
	for name, at := range n.held() {
		now.Ours[name] = Published(at.NodeDevice)
	}
	some := func(is func(device string) bool) bool {
		return slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool { return is(r.Device) })
	}
	exclusive := func(device string) bool { return s.decisions[device].Sharing == journal.Exclusive }
	refused := func(device string) bool { return !now.StillOffers(s.list, device) }
	if n.Inventory == nil || !some(refused) && !some(exclusive) {
		return s, nil
	}
	var unknown, err error
	if now.Others, now.Sharers, unknown = n.others(ctx, claim); some(refused) {
		s, err = n.survey(now.Others, now.Sharers, unknown)
	}
	if err == nil && some(exclusive) {
		err = unknown
	}
	return s, err
}

// nodeDevice converts a device for a record.
func nodeDevice(d inventory.Decision, as resourceapi.Device) *state.NodeDevice {
	n := &state.NodeDevice{Ref: d.Device.Ref, Published: config.Encode(as), Reset: d.Reset, Withhold: d.Withhold}
	n.IfName = cmp.Or(inventory.Text(as.Attributes, inventory.AttrIfName), n.IfName) // the published name is known even while the interface is in a pod
	return n
}

// deviceOf is the reverse of nodeDevice. It sets the fields that CNI configurations need.
func deviceOf(n *state.NodeDevice) inventory.Device {
	published := Published(n)
	return inventory.Device{Name: published.Name, Ref: n.Ref, Attributes: published.Attributes}
}

// Networks returns the networks of a claim, with the allocated devices in their configurations.
func (a Allocation) Networks(claim *resourceapi.ResourceClaim, p cniconfig.Policy) ([]state.Attachment, error) {
	p.Bare = func(device string) bool {
		d := a[device]
		return d != nil && inventory.Text(Published(d).Attributes, inventory.ResourceName) != ""
	}
	p.Bind = a.bind
	return cniconfig.Resolve(claim, p)
}

func (a Allocation) bind(n *state.Attachment, keys cniconfig.DeviceKeys) *cniconfig.Refusal {
	if n.NodeDevice = a[n.Device]; n.Bare() {
		return nil
	}
	unfit := ""
	switch {
	case n.Driver == "":
	case n.NodeDevice == nil:
		unfit = "which stands for networks without hardware"
	case n.NodeDevice.Shared():
		unfit = "which other pods share"
	case n.NodeDevice.PCI == "":
		unfit = "which is not a PCI function"
	}
	switch {
	case unfit != "":
		return &cniconfig.Refusal{
			Rule:   fmt.Sprintf("driver: %s: device %s is allocated, %s", n.Driver, n.Device, unfit),
			Remedy: "select an exclusive PCI function in the DeviceClass, or remove the key \"driver\"",
		}
	case n.NodeDevice == nil && len(keys) > 0:
		return &cniconfig.Refusal{
			Rule:   fmt.Sprintf("device: %s is allocated, which stands for networks without hardware and has no device", n.Device),
			Remedy: "select a device of the node by its attributes in the DeviceClass, or remove the key \"device\"",
		}
	case n.NodeDevice == nil:
		return nil
	}
	device := deviceOf(n.NodeDevice)
	if n.Driver != "" { // with a userspace driver the device has no interface
		device.IfName = ""
	}
	list, deviceID, refusal := binding.Configure(n.List, device, inventory.Sharing(Published(n.NodeDevice)), keys)
	if n.List = list; deviceID != "" {
		capabilities := map[string]json.RawMessage{"deviceID": config.Encode(deviceID)}
		maps.Copy(capabilities, n.Capabilities)
		n.Capabilities = capabilities
	}
	return refusal
}

// Metadata is the metadata of an attached device for its pod. [state.Execution] contains it in JSON.
type Metadata struct {
	Attributes  map[string]resourceapi.DeviceAttribute `json:"attributes,omitempty"`
	NetworkData *resourceapi.NetworkDeviceData         `json:"networkData,omitempty"`
}

// MetadataOf returns the recorded metadata of a device that is attached to a network.
func MetadataOf(at *state.Attachment) (m Metadata) { return decoded[Metadata](at.Metadata) }

// Published returns the device in the ResourceSlice, as recorded.
func Published(n *state.NodeDevice) resourceapi.Device {
	return decoded[resourceapi.Device](n.Published)
}

// Attributes returns the metadata attributes of an attachment's device: the published attributes, and the attributes of its
// device information, which may be nil. A device that is bound to another kernel driver has no ifName.
func (n *Node) Attributes(at *state.Attachment, info *devinfo.Info) map[string]resourceapi.DeviceAttribute {
	all := map[string]resourceapi.DeviceAttribute{}
	if at.NodeDevice != nil {
		published := Published(at.NodeDevice)
		for name, value := range published.Attributes {
			all[string(name)] = value
		}
		if names := published.Attributes[inventory.AttrRDMADevice].StringValue; names != nil {
			all[metadata.RDMADevices] = metadata.RDMAList(*names)
		}
	}
	if at.Driver != "" {
		all[string(inventory.AttrDriver)] = resourceapi.DeviceAttribute{StringValue: &at.Driver}
		delete(all, string(inventory.AttrIfName))
	}
	if info != nil && n.Finder != nil {
		warn := func(what string) { n.Log.Warn("device metadata", "left out", what) }
		maps.Copy(all, metadata.Attributes(info, n.Finder.Sys, warn))
	}
	if mtu := n.mtuOf(at, info); mtu != 0 {
		all[metadata.MTU] = resourceapi.DeviceAttribute{IntValue: &mtu}
		if _, published := all[string(inventory.AttrMTU)]; published { // before ADD
			all[string(inventory.AttrMTU)] = all[metadata.MTU]
		}
	}
	if node := all[string(inventory.NUMANode)].IntValue; node != nil && n.NUMANode == deviceattribute.ListAttribute {
		all[string(inventory.NUMANode)] = n.numaList(*node)
	}
	return all
}

// mtuOf returns the MTU of an attached interface or socket, in bytes; 0 = unknown. Results before CNI 1.1.0 have none, so
// that the kernel is asked.
func (n *Node) mtuOf(at *state.Attachment, info *devinfo.Info) int64 {
	if at.Result == nil {
		return 0
	}
	mtu := metadata.MTUOf(at.Result, at.List, at.IfName, at.Netns)
	if mtu == 0 && n.Finder != nil {
		i, err := n.Finder.Interfaces.Interface(at.Netns, at.IfName)
		if err != nil && !errors.Is(err, link.ErrNoInterface) && !errors.Is(err, link.ErrNoNetns) {
			n.Log.Warn("device metadata", "left out", fmt.Sprintf("mtu: %v", err))
		}
		mtu = int64(i.MTU)
	}
	if info != nil && info.VhostUser != nil {
		mtu = cmp.Or(mtu, metadata.DefaultMTU)
	}
	return mtu
}

// CheckRecord returns the error of a record that is valid but for its parts in types of this package and the Kubernetes API.
func CheckRecord(record *state.Claim) error {
	for _, at := range slices.Concat(record.Attachments, record.Undeleted) {
		var err error
		if at.NodeDevice != nil {
			err = json.Unmarshal(at.NodeDevice.Published, new(resourceapi.Device))
		}
		if at.Metadata != nil {
			err = errors.Join(err, json.Unmarshal(at.Metadata, new(Metadata)))
		}
		if at.Note != nil {
			err = errors.Join(err, json.Unmarshal(at.Note, new(restore.Snapshot)))
		}
		if err != nil {
			return fmt.Errorf("request %q: %w", at.Request, err)
		}
	}
	return nil
}

// decoded returns a part of a record that [CheckRecord] has accepted.
func decoded[T any](part json.RawMessage) (v T) {
	_ = json.Unmarshal(part, &v)
	return v
}
