package dra

import (
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

// ownDevices are those of the node's own devices that a claim has, by name.
type ownDevices map[string]*state.NodeDevice

// allocated looks for the node's own devices that are allocated to a claim. The node is
// looked at if there are any that the claim's record does not know. An error that the same
// claim always gets is a [*cniconfig.Refusal].
func (a *Agent) allocated(ctx context.Context, claim *resourceapi.ResourceClaim) (ownDevices, error) {
	own := ownDevices{}
	if claim.Status.Allocation == nil {
		return own, nil
	}
	a.mu.Lock()
	known := a.claims[claim.UID]
	var record *state.Claim
	if known != nil {
		record = known.record
	}
	a.mu.Unlock()
	var unknown []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		switch {
		case r.Driver != a.Driver || r.Device == DeviceName:
		case record != nil && heldIn(record, r.Pool, r.Device) != nil:
			own[r.Device] = heldIn(record, r.Pool, r.Device)
		default:
			unknown = append(unknown, r)
		}
	}
	if unknown == nil {
		return own, nil
	}
	return own, a.lookUp(ctx, unknown, own)
}

// lookUp finds allocated devices on the node.
func (a *Agent) lookUp(ctx context.Context, results []resourceapi.DeviceRequestAllocationResult, own ownDevices) error {
	refuse := func(r resourceapi.DeviceRequestAllocationResult, why string) error {
		return &cniconfig.Refusal{
			Request: r.Request, Rule: fmt.Sprintf("device %s is allocated, and %s", r.Device, why),
			Remedy: "delete the pod, to have another one allocated, or correct the rules of the node's devices",
		}
	}
	if a.Inventory == nil {
		return refuse(results[0], "this node offers no devices of its own")
	}
	decisions, published, err := a.surveyFor(ctx, results)
	if err != nil {
		return fmt.Errorf("the node's devices: %w", err)
	}
	for _, r := range results {
		d, there := decisions[r.Device]
		switch {
		case !there:
			return refuse(r, "this node has none of that name")
		case d.Why != "":
			return refuse(r, "this node does not offer it: "+d.Why)
		}
		own[r.Device] = nodeDevice(d.Device, published[r.Device])
	}
	return nil
}

// surveyFor takes what was last found out of the node, at most [inventory.Times.Poll] ago,
// if that offers all the devices, and nobody has taken one since: to look at a thousand VFs
// takes longer than all else that Prepare does. Otherwise it looks. What others have, which the
// kubelet may not say for a while, matters for exclusive devices alone.
func (a *Agent) surveyFor(ctx context.Context, results []resourceapi.DeviceRequestAllocationResult) (map[string]inventory.Decision, inventory.Published, error) {
	a.node.mu.Lock()
	decisions, published := a.node.decisions, a.node.last
	a.node.mu.Unlock()
	now := inventory.Situation{Ours: a.held().as(), Withheld: a.withheld()}
	some := func(is func(device string) bool) bool {
		return slices.ContainsFunc(results, func(r resourceapi.DeviceRequestAllocationResult) bool { return is(r.Device) })
	}
	exclusive := func(device string) bool { return decisions[device].As == inventory.Exclusive }
	refused := func(device string) bool { return !now.StillOffers(decisions, device) }
	if !some(refused) && !some(exclusive) {
		return decisions, published, nil
	}
	var unknown error
	if now.Others, unknown = a.others(ctx); some(refused) {
		var list []inventory.Slice
		var err error
		if decisions, list, err = a.survey(now.Others, unknown); err != nil {
			return nil, nil, err
		}
		published = inventory.PublishedIn(list)
	}
	if some(exclusive) {
		return decisions, published, unknown
	}
	return decisions, published, nil
}

// nodeDevice is what a record has of a device.
func nodeDevice(d inventory.Device, as resourceapi.Device) *state.NodeDevice {
	n := &state.NodeDevice{Ref: d.Ref, Published: as}
	if name := as.Attributes[inventory.AttrIfName].StringValue; name != nil { // also while it is in a pod
		n.IfName = *name
	}
	return n
}

func offeredAs(n *state.NodeDevice) inventory.As {
	if n.Shared() {
		return inventory.Shared
	}
	return inventory.Exclusive
}

// deviceOf is the reverse of nodeDevice, for what a configuration is told of a device.
func deviceOf(n *state.NodeDevice) inventory.Device {
	return inventory.Device{Name: n.Published.Name, Ref: n.Ref, Attributes: n.Published.Attributes}
}

// resolve gives the networks of a claim, with the devices in their configurations.
func (own ownDevices) resolve(claim *resourceapi.ResourceClaim, p cniconfig.Policy) ([]cniconfig.Network, error) {
	p.Bare = func(device string) bool {
		d := own[device]
		return d != nil && d.Published.Attributes[inventory.ResourceName].StringValue != nil
	}
	networks, err := cniconfig.Resolve(claim, p)
	if err != nil {
		return nil, err
	}
	for n := range networks {
		if err := own.bind(&networks[n]); err != nil {
			if refusal := (*cniconfig.Refusal)(nil); errors.As(err, &refusal) {
				refusal.Request = networks[n].Request
			}
			return nil, err
		}
	}
	return networks, nil
}

// bind puts the device of a network into its configuration.
func (own ownDevices) bind(n *cniconfig.Network) error {
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
	node := own[n.Device]
	if refusal := mayBind(n, node); refusal != nil {
		return refusal
	}
	switch {
	case node == nil && len(how) > 0:
		return &cniconfig.Refusal{
			Rule:   fmt.Sprintf("device: %s is allocated, which stands for networks of software and is no device", n.Device),
			Remedy: "have the DeviceClass select a device of the node by its attributes, or leave device out",
		}
	case node == nil:
		return nil
	}
	device := deviceOf(node)
	if n.Driver != "" { // which leaves it none
		device.IfName = ""
	}
	bound, err := binding.Bind(n.List, device, offeredAs(node), how)
	if err != nil {
		return err
	}
	n.List = bound.List
	if bound.DeviceID == "" {
		return nil
	}
	id, err := json.Marshal(bound.DeviceID)
	if err != nil {
		return err
	}
	n.Capabilities = maps.Clone(n.Capabilities)
	if n.Capabilities == nil {
		n.Capabilities = map[string]json.RawMessage{}
	}
	n.Capabilities["deviceID"] = id
	return nil
}

// mayBind refuses a driver for what is no PCI function of the claim's own.
func mayBind(n *cniconfig.Network, node *state.NodeDevice) *cniconfig.Refusal {
	if n.Driver == "" || node != nil && !node.Shared() && node.PCI != "" {
		return nil
	}
	what := "which is no PCI function"
	switch {
	case node == nil:
		what = "which stands for networks of software"
	case node.Shared():
		what = "which other pods share"
	}
	return &cniconfig.Refusal{
		Rule:   fmt.Sprintf("driver: %s: device %s is allocated, %s", n.Driver, n.Device, what),
		Remedy: "have the DeviceClass select a PCI function that is offered as exclusive, or leave driver out",
	}
}
