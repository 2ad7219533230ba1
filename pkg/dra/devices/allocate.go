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

	"devinfo-cni.io/pkg/dra/cniconfig"
	"devinfo-cni.io/pkg/dra/devices/binding"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/state"
)

// Allocation is the node's devices that a claim is allocated, by name.
type Allocation map[string]*state.NodeDevice

// Allocated returns the node's devices that are allocated to a claim. It surveys the node if the claim's
// record, which may be nil, lacks one of them. An error that the same claim always gets is a
// [*cniconfig.Refusal].
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
	if unknown == nil {
		return own, nil
	}
	var s survey
	if n.Inventory != nil {
		var err error
		if s, err = n.surveyFor(ctx, unknown); err != nil {
			return own, fmt.Errorf("the node's devices: %w", err)
		}
	}
	for _, r := range unknown {
		d, why := s.decisions[r.Device], ""
		switch {
		case n.Inventory == nil:
			why = "this node offers no devices of its own"
		case d.Device.Name == "":
			why = "this node has none of that name"
		case d.Why != "":
			why = "this node does not offer it: " + d.Why
		}
		if why != "" {
			return own, &cniconfig.Refusal{
				Request: r.Request, Rule: fmt.Sprintf("device %s is allocated, and %s", r.Device, why),
				Remedy: "delete the pod, to have another one allocated, or correct the rules of the node's devices",
			}
		}
		own[r.Device] = nodeDevice(d.Device, s.published[r.Device])
	}
	return own, nil
}

// surveyFor returns the last survey, which is at most [inventory.Times.Poll] old, if it still offers all the
// devices, because surveying a thousand VFs takes longer than the rest of Prepare. Otherwise it surveys the
// node. It asks for the devices that were allocated outside DRA, which the kubelet may not tell for a while,
// only if one of the devices is exclusive.
func (n *Node) surveyFor(ctx context.Context, results []resourceapi.DeviceRequestAllocationResult) (survey, error) {
	n.mu.Lock()
	s := n.last
	n.mu.Unlock()
	now := inventory.Situation{Ours: n.held().as(), Withheld: n.Withheld()}
	some := func(is func(device string) bool) bool {
		return slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool { return is(r.Device) })
	}
	exclusive := func(device string) bool { return s.decisions[device].Sharing == inventory.Exclusive }
	refused := func(device string) bool { return !now.StillOffers(s.decisions, device) }
	if !some(refused) && !some(exclusive) {
		return s, nil
	}
	var unknown, err error
	if now.Others, unknown = n.others(ctx); some(refused) {
		s, err = n.survey(now.Others, unknown)
	}
	if err == nil && some(exclusive) {
		err = unknown
	}
	return s, err
}

// nodeDevice is the device as records have it.
func nodeDevice(d inventory.Device, as resourceapi.Device) *state.NodeDevice {
	n := &state.NodeDevice{Ref: d.Ref, Published: as}
	n.IfName = cmp.Or(inventory.Text(as, inventory.AttrIfName), n.IfName) // also while it is in a pod
	return n
}

// deviceOf is the reverse of nodeDevice, with all that configurations contain of a device.
func deviceOf(n *state.NodeDevice) inventory.Device {
	return inventory.Device{Name: n.Published.Name, Ref: n.Ref, Attributes: n.Published.Attributes}
}

func offeredAs(n *state.NodeDevice) inventory.SharingMode {
	if n.Shared() {
		return inventory.Shared
	}
	return inventory.Exclusive
}

// Networks returns the networks of a claim, with the allocated devices in their configurations.
func (own Allocation) Networks(claim *resourceapi.ResourceClaim, p cniconfig.Policy) ([]cniconfig.Network, error) {
	p.Bare = func(device string) bool {
		d := own[device]
		return d != nil && inventory.Text(d.Published, inventory.ResourceName) != ""
	}
	networks, err := cniconfig.Resolve(claim, p)
	if err != nil {
		return nil, err
	}
	for n := range networks {
		networks[n].NodeDevice = own[networks[n].Device]
		if err := configure(&networks[n]); err != nil {
			if refusal, is := errors.AsType[*cniconfig.Refusal](err); is {
				refusal.Request = networks[n].Request
			}
			return nil, err
		}
	}
	return networks, nil
}

func configure(n *cniconfig.Network) error {
	if n.Bare() {
		return nil
	}
	var how cniconfig.How
	if n.How != nil {
		var refusal *cniconfig.Refusal
		if how, refusal = cniconfig.ParseHow(n.How); refusal != nil {
			return refusal
		}
	}
	unfit := ""
	switch {
	case n.Driver == "":
	case n.NodeDevice == nil:
		unfit = "which stands for networks of software"
	case n.NodeDevice.Shared():
		unfit = "which other pods share"
	case n.NodeDevice.PCI == "":
		unfit = "which is no PCI function"
	}
	switch {
	case unfit != "":
		return &cniconfig.Refusal{
			Rule:   fmt.Sprintf("driver: %s: device %s is allocated, %s", n.Driver, n.Device, unfit),
			Remedy: "have the DeviceClass select a PCI function that is offered as exclusive, or leave driver out",
		}
	case n.NodeDevice == nil && len(how) > 0:
		return &cniconfig.Refusal{
			Rule:   fmt.Sprintf("device: %s is allocated, which stands for networks of software and is no device", n.Device),
			Remedy: "have the DeviceClass select a device of the node by its attributes, or leave device out",
		}
	case n.NodeDevice == nil:
		return nil
	}
	device := deviceOf(n.NodeDevice)
	if n.Driver != "" { // a userspace driver leaves it none
		device.IfName = ""
	}
	list, deviceID, err := binding.Bind(n.List, device, offeredAs(n.NodeDevice), how)
	if err != nil {
		return err
	}
	n.List = list
	if deviceID == "" {
		return nil
	}
	capabilities := map[string]json.RawMessage{}
	maps.Copy(capabilities, n.Capabilities)
	n.Capabilities = capabilities
	capabilities["deviceID"], err = json.Marshal(deviceID)
	return err
}
