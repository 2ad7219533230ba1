package dra

import (
	"context"
	"errors"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// Shared returns the device that any number of claims share. It needs DRAConsumableCapacity, which is on by
// default since Kubernetes 1.36. If limit is positive, at most limit claims can hold it at a time.
func Shared(limit int) []resourceapi.Device {
	device := resourceapi.Device{Name: devices.SoftwareDevice, AllowMultipleAllocations: new(true)}
	if limit > 0 {
		device.Capacity = inventory.OnePerClaim(int64(limit))
	}
	return []resourceapi.Device{device}
}

// dropsSharing reports whether err means that the API server dropped the fields that [Shared] sets.
func dropsSharing(err error) bool {
	fields, is := errors.AsType[*resourceslice.DroppedFieldsError](err)
	return is && sharing(fields.DesiredSlice) && !sharing(fields.ActualSlice)
}

func sharing(slice *resourceapi.ResourceSlice) bool {
	return slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool {
		return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	})
}

// withdraw removes the node's ResourceSlices.
func (k *Kubelet) withdraw(ctx context.Context) {
	if err := removeSlices(ctx, k.options.Client, k.agent.Driver, k.options.Node); err != nil && ctx.Err() == nil {
		k.agent.Log.Error("cannot remove the node's ResourceSlices; the scheduler may still allocate its devices", "error", err)
	}
}

// publish publishes the current devices of the node. The first call waits until the API server can be reached.
func (k *Kubelet) publish(ctx context.Context) error {
	node := k.agent.Node
	var software []resourceapi.Device
	if node.Sharing() {
		software = Shared(k.options.Limit)
	}
	own, ok := node.Slices(ctx)
	if !ok {
		return nil
	}
	list := append([]inventory.Slice{{Devices: software}}, own...)
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
