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

// Shared is one device for any number of claims: DRAConsumableCapacity, on by default
// since Kubernetes 1.36. With limit > 0 no more than that many hold it at a time.
func Shared(limit int) []resourceapi.Device {
	device := resourceapi.Device{Name: devices.SoftwareDevice, AllowMultipleAllocations: new(true)}
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
