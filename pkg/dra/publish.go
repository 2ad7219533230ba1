package dra

import (
	"context"
	"errors"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/state"
)

// DeviceName is the device for networks of software alone, which all claims on a node share.
const DeviceName = "cni"

// Shared is one device for any number of claims: DRAConsumableCapacity, on by default
// since Kubernetes 1.36. With limit > 0 no more than that many hold it at a time.
func Shared(limit int) []resourceapi.Device {
	device := resourceapi.Device{Name: DeviceName, AllowMultipleAllocations: new(true)}
	if limit > 0 {
		device.Capacity = inventory.OneOf(int64(limit))
	}
	return []resourceapi.Device{device}
}

// dropsSharing says whether err is that of a server which drops what [Shared] needs.
func dropsSharing(err error) bool {
	fields, is := errors.AsType[*resourceslice.DroppedFieldsError](err)
	return is && sharing(fields.DesiredSlice) && !sharing(fields.ActualSlice)
}

func sharing(slice *resourceapi.ResourceSlice) bool {
	return slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool {
		return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	})
}

// publish publishes what is offered now. The first time it waits until the server can be asked
// what is published already.
func (k *Kubelet) publish(ctx context.Context) error {
	var devices []resourceapi.Device
	if !k.agent.node.unshared.Load() {
		devices = Shared(k.options.Limit)
	}
	own, ok := k.agent.ownSlices(ctx)
	if !ok {
		return nil
	}
	list := without(append([]inventory.Slice{{Devices: devices}}, own...), k.agent.withheld())
	if k.last != nil && inventory.Same(k.last, list) {
		return nil
	}
	pool := resourceslice.Pool{}
	for _, s := range list {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: s.Devices})
	}
	err := k.helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{k.options.Node: pool}})
	if err == nil {
		k.last = list
	}
	return err
}

// without leaves devices out. A slice stays if it is empty: one less would have all others of
// the pool written again, which have their number.
func without(list []inventory.Slice, withheld map[string]bool) (rest []inventory.Slice) {
	for _, s := range list {
		devices := slices.DeleteFunc(slices.Clone(s.Devices), func(d resourceapi.Device) bool { return withheld[d.Name] })
		rest = append(rest, inventory.Slice{Devices: devices})
	}
	return rest
}

// withheldOf are a claim's exclusive devices that nobody else may get: their last DEL has
// failed, or they are not what they were, whether or not that was given up since. That is
// before the claim is free.
func withheldOf(record *state.Claim) (devices []string) {
	for _, at := range slices.Concat(record.Attachments, record.Abandoned) {
		if at.Tries > 0 && at.DelError != "" && isExclusive(&at) && !at.Lost {
			devices = append(devices, at.Device)
		}
	}
	return devices
}

// withheld are those of all claims.
func (a *Agent) withheld() map[string]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	devices := map[string]bool{}
	for _, c := range a.claims {
		for _, device := range withheldOf(c.record) {
			devices[device] = true
		}
	}
	return devices
}

// offerSoon has the node's devices published again.
func (a *Agent) offerSoon() { soon(a.toOffer) }
