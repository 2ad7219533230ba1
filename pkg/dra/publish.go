package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/inventory"
)

const (
	// DeviceName is the one device that a node offers, and that all its claims share.
	DeviceName = "cni"
	// MaxNumbered is how many devices a node offers to a server that cannot share one:
	// as many as one ResourceSlice may hold.
	MaxNumbered = resourceapi.ResourceSliceMaxDevices
)

// Shared is one device for any number of claims: DRAConsumableCapacity, on by default
// since Kubernetes 1.36. With limit > 0 no more than that many hold it at a time.
func Shared(limit int) []resourceapi.Device {
	device := resourceapi.Device{Name: DeviceName, AllowMultipleAllocations: new(true)}
	if limit > 0 {
		device.Capacity = inventory.OneOf(int64(limit))
	}
	return []resourceapi.Device{device}
}

// Numbered is a device for each claim, cni-0 and so on, for servers that drop what
// [Shared] needs: limit of them, or [MaxNumbered] if that is less or limit is 0.
func Numbered(limit int) []resourceapi.Device {
	if limit <= 0 || limit > MaxNumbered {
		limit = MaxNumbered
	}
	devices := make([]resourceapi.Device, limit)
	for n := range devices {
		devices[n].Name = fmt.Sprintf("%s-%d", DeviceName, n)
	}
	return devices
}

// drops says whether err is that of a server which drops what slices have: sharing or counting.
func drops(err error, has func(*resourceapi.ResourceSlice) bool) bool {
	fields, is := errors.AsType[*resourceslice.DroppedFieldsError](err)
	return is && has(fields.DesiredSlice) && !has(fields.ActualSlice)
}

func counting(slice *resourceapi.ResourceSlice) bool {
	return len(slice.Spec.SharedCounters) > 0 || slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool { return len(d.ConsumesCounters) > 0 })
}

func sharing(slice *resourceapi.ResourceSlice) bool {
	return slices.ContainsFunc(slice.Spec.Devices, func(d resourceapi.Device) bool {
		return d.AllowMultipleAllocations != nil && *d.AllowMultipleAllocations
	})
}

// publish publishes what is offered now, numbered from now on if that is so once. The first time
// it waits until the server can be asked what is published already.
func (k *Kubelet) publish(ctx context.Context, numbered bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.numbered = k.numbered || numbered
	devices := Shared(k.options.Limit)
	if k.numbered {
		devices = Numbered(k.options.Limit)
	}
	own, ok := k.agent.ownSlices(ctx, !k.numbered)
	if !ok {
		return nil
	}
	list := without(append([]inventory.Slice{{Devices: devices}}, own...), k.agent.withheld())
	if k.last != nil && inventory.Same(k.last, list) {
		return nil
	}
	pool := resourceslice.Pool{}
	for _, s := range list {
		pool.Slices = append(pool.Slices, resourceslice.Slice{Devices: s.Devices, SharedCounters: s.SharedCounters})
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
		rest = append(rest, inventory.Slice{Devices: devices, SharedCounters: s.SharedCounters})
	}
	return rest
}

// countersSince is the first Kubernetes whose scheduler is quick with counters. That of 1.36
// converts every pool for every node.
const countersSince = "1.37"

// decideCounters waits for the API server's version, and lets the agent publish counters if the
// scheduler is quick with them. An upgrade is noticed at the next start.
func (k *Kubelet) decideCounters(ctx context.Context) {
	const pause = 2 * time.Second
	log, waits := k.agent.Log, false
	for ctx.Err() == nil {
		server, err := k.options.Client.Discovery().ServerVersion()
		switch {
		case apierrors.IsForbidden(err):
			log.Error("counters are not published, for the API server does not tell its version: --counters=force publishes them", "error", err)
			return
		case err == nil:
			if is, err := version.ParseGeneric(server.GitVersion); err == nil && is.AtLeast(version.MustParseGeneric(countersSince)) {
				k.agent.count(true)
				return
			}
			log.Warn("counters are not published: the scheduler of Kubernetes 1.36 needs 400 ms for each pod with 10 nodes of 1,024 VFs, and 2.4 s with 50; --counters=force publishes them all the same",
				"server", server.GitVersion, "since", countersSince)
			return
		case !waits:
			waits = true
			log.Error("nothing is published until the API server tells its version, which --counters=auto goes by", "error", err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// withheldOf are a claim's exclusive devices that nobody else may get: their last DEL has
// failed, or they are not what they were, whether or not that was given up since. That is
// before the claim is free.
func withheldOf(record *state.Claim) (devices []string) {
	for _, at := range record.Attachments {
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
