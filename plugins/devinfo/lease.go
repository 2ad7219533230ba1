package devinfo

import (
	"errors"
	"fmt"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// foundLeases returns leases of the device that Find has found, and of its IOMMU group if the container gets it. They
// are exclusive, unless other interfaces use the device too, or may do so and no deviceID names it.
//
// A device that is only described gets no lease, but it is an error if another pod has the device. It is only described
// if its interface is not in the pod, this ADD has run no plugin that may use it, the container gets none of its device
// nodes, and it is not a device without an interface that a deviceID names: another plugin may give that to the container.
func (r *request) foundLeases(device *discovery.Device, info *devinfo.Info, granted grant.Grant) ([]journal.DeviceLease, error) {
	list, err := cleanup.LeasesOf(r.c.Finder.Sys, r.c.Config.DeviceIDs, device, info)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if granted.IOMMUGroup != "" {
		list = journal.MergeLeases(list, journal.DeviceLease{ID: sysfs.ID("iommu", granted.IOMMUGroup), Mode: journal.Exclusive})
	}
	if r.bare(device, info) || device.IsInterface || device.Shared && device.InNetns || len(r.c.Config.Delegates) > 0 || len(granted.Nodes) > 0 {
		return list, nil
	}
	for n := range list {
		list[n].Mode = journal.Shared
	}
	e := r.c.blankEntry()
	e.Leases = list
	return nil, r.c.Journal.Free(e)
}

// bare reports whether a deviceID names a device that a program uses by its device node only: a function on vfio-pci or
// another driver of its kind, or a vhost-vdpa device.
func (r *request) bare(device *discovery.Device, info *devinfo.Info) bool {
	vhost := info != nil && info.Type == devinfo.TypeVDPA && info.Texts()["driver"] == "vhost"
	return len(r.c.Config.DeviceIDs) > 0 && (vhost || sysfs.OnVFIO(device.Driver) || sysfs.OnUIO(device.Driver))
}

// refused adds the pod that asked for the device, and the remedy, to the error of an ADD that failed because another holder
// has the device. It then leaves an entry that tells DEL not to run the delegates, which were not started or have had their
// DEL. An entry that is there stays.
func (c *Call) refused(err error) error {
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
	case held.Holder.Entry.Time.IsZero(): // unreadable: gc keeps it
		remedy = "the kubelet retries until that pod is deleted; if the pod no longer exists, remove its unreadable record " + held.Holder.Entry.Key.Path(c.Node.StateDir)
	}
	e := c.blankEntry()
	e.Refused = held.ID
	if err := c.Journal.Put(e, nil); err != nil && !errors.As(err, new(*journal.ConcurrentChangeError)) {
		c.Log.Warn("cannot record that ADD was refused, so DEL may run delegates", "error", err)
	}
	e.Unlock()
	return failure.New(failure.Held, fmt.Errorf("%w: %s cannot have it too", err, journal.Holder{Entry: e}.Name()), remedy)
}

// blankEntry returns an entry that says only whose it is.
func (c *Call) blankEntry() *journal.Entry {
	e := &journal.Entry{
		Key: c.Key, Netns: c.Attachment.Netns, Time: time.Now().UTC(), Pod: c.Attachment.Pod().String(), CNIVersion: c.Config.CNIVersion, Args: c.Attachment.CNIArgs,
	}
	if link.NetnsNamesProcess(e.Netns) {
		if own, _ := link.IsOwnNetns(e.Netns); !own { // each process has its own /proc/self
			e.Inode = link.NetnsInode(e.Netns)
		}
	}
	return e
}
