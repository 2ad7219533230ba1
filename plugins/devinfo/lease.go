package plugin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/sysfs"
)

// leases are what it takes to have a device, and shared ones of those that it is a part of.
// A name that is no device's takes none.
func (c *call) leases(mode journal.Mode, name string) (list []journal.DeviceLease, err error) {
	line, err := c.Finder.Sys.Lineage(name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	for _, device := range line {
		list = mergeLeases(list, journal.DeviceLease{ID: device.ID, Mode: mode, Object: device.Inode})
		mode = journal.Shared
	}
	return list, nil
}

// mergeLeases adds leases to a list; of two of one device the exclusive one stays.
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

// askedLeases are those of the devices that the delegates are asked to take: sriov-cni
// changes a VF before anything can be found. By a deviceID a pod has the device to itself.
func (c *call) askedLeases(delegates []json.RawMessage) ([]journal.DeviceLease, error) {
	var names []any // a plugin may have a key of that name that is no string
	for _, id := range c.cfg.DeviceIDs {
		names = append(names, id.ID)
	}
	for _, raw := range delegates {
		var child struct {
			DeviceID, PCIBusID any
			RuntimeConfig      struct{ DeviceID any } // host-device obeys it above all
		}
		_ = json.Unmarshal(raw, &child) // an object, or delegates will refuse it
		names = append(names, child.DeviceID, child.PCIBusID, child.RuntimeConfig.DeviceID)
	}
	var list []journal.DeviceLease
	for n, name := range names {
		id, _ := name.(string)
		if id == "" || slices.Contains(names[:n], name) {
			continue
		}
		more, err := c.leases(journal.Exclusive, id)
		if err != nil {
			return nil, err
		}
		list = mergeLeases(list, more...)
	}
	return list, nil
}

// othersDevice names the holder of a device that the delegates were asked for, if that is
// somebody else.
func (c *call) othersDevice(e *journal.Entry) error {
	if c.Finder.Sys == nil {
		return nil
	}
	asked, err := c.askedLeases(e.Delegates)
	if err != nil {
		return err
	}
	pod := cmp.Or(e.Pod, c.att.Pod().String())
	if err := c.Journal.Free(&journal.Entry{Key: c.key, Netns: e.Netns, Pod: pod, Leases: asked}); as[*journal.HeldError](err) {
		return err
	}
	return nil
}

// foundLeases are those of the device that was found: exclusive, unless the interface is
// one of several on it. One that is merely described is not the pod's: its interface is not
// in the pod, no delegate was asked for it, and no container may have its nodes. It takes no
// lease, and must not be another pod's.
func (r *request) foundLeases(device *discovery.Device, info *devinfo.Info, given grant.Grant) ([]journal.DeviceLease, error) {
	mode := journal.Exclusive
	if device.Shared {
		mode = journal.Shared
	}
	name := cmp.Or(device.SF, discovery.Identity(info))
	if info != nil && info.Type == devinfo.TypeVDPA {
		name = discovery.Identity(info)
	}
	list, err := r.leases(mode, name)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if given.IOMMUGroup != "" {
		list = mergeLeases(list, journal.DeviceLease{ID: sysfs.ID("iommu", given.IOMMUGroup), Mode: journal.Exclusive})
	}
	if device.IsInterface || device.Shared && device.InNetns || len(r.children) > 0 || len(given.Nodes) > 0 {
		return list, nil
	}
	for n := range list {
		list[n].Mode = journal.Shared
	}
	return nil, r.held(r.Journal.Free(&journal.Entry{Key: r.key, Netns: r.args.Netns, Pod: r.att.Pod().String(), Leases: list}))
}

// sriovPause and sriovTries bound the wait for sriov-cni's lock: in a chain its DEL comes
// after ours, which has given back the lease.
const (
	sriovPause = 50 * time.Millisecond
	sriovTries = 20
)

// record writes the journal's entry in place of the one that this ADD recorded before, or of the ADD
// that it repeats. What only that one made is removed first, once nothing can be refused any more.
func (r *request) record(undo *rollback, e *journal.Entry) error {
	var err error
	for range sriovTries {
		err = nil
		if undo.former != nil {
			if err = r.Journal.Free(e); err == nil {
				err = r.removeReplaced(undo.former, e)
			}
		}
		if err == nil {
			err = r.Journal.Record(e, cmp.Or(undo.entry, undo.former))
		}
		if held, ok := errors.AsType[*journal.HeldError](err); !ok || held.Holder.Entry != nil || held.Holder.Claim != nil {
			break
		}
		time.Sleep(sriovPause)
	}
	switch {
	case err == nil:
		undo.entry, undo.former = e, nil
	case as[*journal.HeldError](err):
		return r.held(err)
	case codeOf(err) == codeIO:
		return fail(codeIO, err, "the journal is in the node setting stateDir, "+r.Node.StateDir)
	}
	return err
}

// held adds to a refusal who was refused, and what ends it.
func (r *request) held(err error) error {
	held, ok := errors.AsType[*journal.HeldError](err)
	if !ok || held.Kind != journal.OfDevice {
		return err
	}
	remedy := "the kubelet tries again until that pod's DEL; where no kubelet will, \"devinfoctl gc --yes\" ends what is left of a pod that is gone"
	switch {
	case held.Holder.Claim != nil:
		remedy = "the kubelet tries again until the claim is given back; if cni-dra-driver has been removed from the node, \"" + held.Holder.Claim.EndCommand() + "\" ends it"
	case held.Holder.Entry == nil:
		remedy = "the kubelet tries again until sriov-cni's DEL; a lock of it that is left over can be removed"
	}
	asker := journal.Holder{Entry: &journal.Entry{Key: r.key, Args: r.args.Args}}.String()
	return fail(codeHeld, fmt.Errorf("%w: %s cannot have it too", err, asker), remedy)
}
