package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/sysfs"
)

// deviceLeases returns a lease of the named device with the given mode, and shared leases of the devices that
// contain it. It returns none if no such device exists.
func deviceLeases(sys *sysfs.FS, mode journal.SharingMode, name string) (list []journal.DeviceLease, err error) {
	line, err := sys.Lineage(name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	for _, device := range line {
		list = mergeLeases(list, journal.DeviceLease{ID: device.ID, Mode: mode, Object: device.Inode})
		mode = journal.Shared
	}
	return list, nil
}

// mergeLeases adds leases to a list. If a device is in both, the exclusive lease stays.
func mergeLeases(list []journal.DeviceLease, more ...journal.DeviceLease) []journal.DeviceLease {
	for _, l := range more {
		n := slices.IndexFunc(list, func(has journal.DeviceLease) bool { return has.ID == l.ID })
		switch {
		case n < 0:
			list = append(list, l)
		case l.Mode == journal.Exclusive:
			list[n] = l
		}
	}
	return list
}

// askedLeases returns leases of the devices that the configuration and the delegates' configurations name. ADD takes
// them before the delegates run, because sriov-cni changes a VF before devinfo can find it. The leases are exclusive,
// because a pod does not share a device that it gets by deviceID.
func (c *call) askedLeases(delegates []json.RawMessage) ([]journal.DeviceLease, error) {
	var names []any // other plugins may use these keys with other types
	for _, id := range c.cfg.DeviceIDs {
		names = append(names, id.ID)
	}
	for _, raw := range delegates {
		var child struct {
			DeviceID, PCIBusID any
			RuntimeConfig      struct{ DeviceID any } // takes precedence in host-device
		}
		_ = json.Unmarshal(raw, &child) // delegates refuse anything except an object
		names = append(names, child.DeviceID, child.PCIBusID, child.RuntimeConfig.DeviceID)
	}
	var list []journal.DeviceLease
	for n, name := range names {
		id, _ := name.(string)
		if id == "" || slices.Contains(names[:n], name) {
			continue
		}
		more, err := deviceLeases(c.plugin.Finder.Sys, journal.Exclusive, id)
		if err != nil {
			return nil, err
		}
		list = mergeLeases(list, more...)
	}
	return list, nil
}

// foundLeases returns leases of the device that Find has found, and of its IOMMU group if the container gets it. They
// are exclusive, unless other interfaces use the device too.
//
// A device that is only described gets no lease, but it is an error if another pod has the device. It is only described
// if its interface is not in the pod, the network has no delegates, and the container gets none of its device nodes.
func (r *request) foundLeases(device *discovery.Device, info *devinfo.Info, granted grant.Grant) ([]journal.DeviceLease, error) {
	mode := journal.Exclusive
	if device.Shared {
		mode = journal.Shared
	}
	name := discovery.Identity(info)
	if device.SF != "" && (info == nil || info.Type != devinfo.TypeVDPA) {
		name = device.SF
	}
	list, err := deviceLeases(r.plugin.Finder.Sys, mode, name)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if granted.IOMMUGroup != "" {
		list = mergeLeases(list, journal.DeviceLease{ID: sysfs.ID("iommu", granted.IOMMUGroup), Mode: journal.Exclusive})
	}
	if device.IsInterface || device.Shared && device.InNetns || len(r.delegates) > 0 || len(granted.Nodes) > 0 {
		return list, nil
	}
	for n := range list {
		list[n].Mode = journal.Shared
	}
	return nil, r.heldError(r.plugin.Journal.Free(&journal.Entry{Key: r.key, Netns: r.args.Netns, Pod: r.att.Pod().String(), Leases: list}))
}

// heldError adds the pod that asked for the device, and the remedy, to the error of a refused lease.
func (c *call) heldError(err error) error {
	held, ok := errors.AsType[*journal.HeldError](err)
	if !ok || held.Kind != journal.OfDevice {
		return err
	}
	remedy := "the kubelet retries until that pod is deleted; if the pod no longer exists, run \"devinfoctl gc --yes\""
	switch {
	case held.Holder.Claim != nil:
		remedy = "the kubelet retries until the claim is released; if cni-dra-driver is no longer on the node, run \"" + held.Holder.Claim.EndCommand() + "\""
	case held.Holder.Entry == nil:
		remedy = "the kubelet retries until sriov-cni's DEL; if no pod has the device, remove sriov-cni's lock file"
	}
	asker := journal.Holder{Entry: &journal.Entry{Key: c.key, Args: c.args.CNIArgs}}.String()
	return fail(codeHeld, fmt.Errorf("%w: %s cannot have it too", err, asker), remedy)
}
