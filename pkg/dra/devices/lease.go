package devices

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Leases leases the devices of claims in the journal of the devinfo plugin, so that the plugin does not give them to
// other pods. Without a journal, Leases does nothing and reports each device as held.
type Leases struct{ node *Node }

// Lease leases the device of an attachment to a pod, so that the devinfo plugin refuses the device to other pods. The
// error names the current holder and ends with advice for the author of the pod. Each device of a claim has a
// separate lease record: see [state.Attachment.Part].
func (l *Leases) Lease(record *state.Claim, at *state.Attachment, netns, pod, advice string) error {
	if err := l.released(record, at); err != nil {
		return err
	}
	if l.node.Journal == nil || leaseID(at) == "" {
		return nil
	}
	of, err := l.need(record.UID, at)
	if err != nil {
		return err
	}
	of.Netns, of.Pods = netns, []string{pod}
	return l.take(record, []*state.Attachment{at}, of, advice)
}

// LeaseBare leases all devices of a claim that have no network, in one lease record. Only containers of the claim may
// then get their device nodes. The record also owns the files that [Node.WritePluginFile] writes.
func (l *Leases) LeaseBare(record *state.Claim) error {
	var bare []*state.Attachment
	for i := range record.Attachments {
		if at := &record.Attachments[i]; at.Bare() {
			if err := l.released(record, at); err != nil {
				return err
			}
			bare = append(bare, at)
		}
	}
	if l.IsHeld(record) {
		return nil
	}
	of, err := l.need(record.UID, bare...)
	if err != nil {
		return err
	}
	of.Pods, of.Files = []string{record.Pod.UID}, l.pluginFiles(record)
	return l.take(record, bare, of, "")
}

// released returns an error if another claim on record may still have the device of an attachment: its pod was deleted by
// force, its DEL is being retried after it was given up, or the device has no lease in the journal.
func (l *Leases) released(record *state.Claim, at *state.Attachment) error {
	if at.NodeDevice == nil || at.NodeDevice.Shared() {
		return nil
	}
	for _, h := range l.node.claims.Holders(at) {
		if h.Has && h.Claim != record.UID {
			return fmt.Errorf("device %s is still held by claim %s; the driver retries until that claim releases it", at.Device, h.Name)
		}
	}
	return nil
}

// IsHeld reports whether the devices without a network are leased to the pod of their claim.
func (l *Leases) IsHeld(record *state.Claim) bool {
	if l.node.Journal == nil {
		return true
	}
	of, err := l.node.Journal.Claim(record.UID)
	return err == nil && of != nil && slices.Equal(of.Pods, []string{record.Pod.UID}) && l.node.Journal.Holding(of) &&
		maps.Equal(of.Files, l.pluginFiles(record))
}

// Grant returns the device nodes and mounts for the containers of an attachment, and leases the IOMMU group of the
// device nodes. info may be nil.
func (n *Node) Grant(record *state.Claim, at *state.Attachment, info *devinfo.Info) (grant.Grant, error) {
	if n.DeviceNodes == nil || info == nil {
		return grant.Grant{}, nil
	}
	settings, err := n.Settings()
	if err != nil {
		return grant.Grant{}, err
	}
	g := grant.Granter{Sys: n.Finder.Sys, Nodes: n.DeviceNodes, Settings: settings, Pod: identity(at)}
	if at.NodeDevice != nil && !at.NodeDevice.Shared() {
		g.Claimed, g.DeviceIDs = leaseID(at), deviceIDs(at)
	}
	given, err := g.ForInterface(n.Finder, at.Netns, at.IfName, info)
	if err == nil {
		err = n.Leases.leaseGroup(record, at, given.IOMMUGroup)
	}
	return given, err
}

// leaseGroup leases the IOMMU group of a device node that a container gets, because the device node gives access to
// all devices in the group.
func (l *Leases) leaseGroup(record *state.Claim, at *state.Attachment, group string) error {
	if l.node.Journal == nil || group == "" {
		return nil
	}
	of, err := l.node.Journal.Claim(leaseRecord(record.UID, at))
	lease := journal.DeviceLease{ID: sysfs.ID("iommu", group), Mode: journal.Exclusive}
	if err != nil || of == nil {
		return err
	}
	if !slices.Contains(of.Leases, lease) {
		of.Leases = append(of.Leases, lease)
	} else if l.node.Journal.Holding(of) {
		return nil
	}
	return l.take(record, []*state.Attachment{at}, of, "")
}

func leaseRecord(claim string, at *state.Attachment) string {
	return (&journal.Claim{UID: claim, Part: at.Part()}).FileName()
}

// need returns the lease record for attachments of one [state.Attachment.Part]. It contains their devices and the
// parents of these devices.
func (l *Leases) need(claim string, attachments ...*state.Attachment) (*journal.Claim, error) {
	of := &journal.Claim{UID: claim, Part: attachments[0].Part(), Netns: attachments[0].Netns}
	for _, at := range attachments {
		line, err := l.node.Lineage(leaseID(at))
		if err != nil {
			return nil, err
		}
		for i, device := range line {
			mode := journal.Exclusive
			if i > 0 || at.NodeDevice.Shared() {
				mode = journal.Shared
			}
			of.Leases = append(of.Leases, journal.DeviceLease{ID: device.ID, Mode: mode, Object: device.Inode})
		}
	}
	return of, nil
}

// take writes a lease record for attachments. The error names the first device that has a different holder.
func (l *Leases) take(record *state.Claim, attachments []*state.Attachment, of *journal.Claim, advice string) error {
	of.Namespace, of.Name, of.Time = record.Namespace, record.Name, time.Now().UTC()
	err := l.node.Journal.Hold(of)
	held, is := errors.AsType[*journal.HeldError](err)
	if !is {
		return err
	}
	at := attachments[0]
	for _, of := range attachments {
		if leaseID(of) == journal.DeviceName(cmp.Or(held.Part, held.ID)) {
			at = of
		}
	}
	what := fmt.Sprintf("%s (%s)", at.Device, leaseID(at))
	if strings.HasPrefix(held.ID, sysfs.ID("iommu", "")) {
		what += ", in " + journal.DeviceName(held.ID) + ","
	}
	for _, h := range l.node.claims.Holders(nil) {
		if by := held.Holder.Claim; by != nil && by.UID == h.Claim && h.Attachment.Phase == state.Undeleted {
			advice = ", but its DEL was given up: clean up its leftovers, then run cni-dra-driver clear " + by.UID
		}
	}
	return fmt.Errorf("%s is held by %s%s", what, l.nameOf(held.Holder), advice)
}

// nameOf describes a holder. A lock of sriov-cni only contains a network namespace, so nameOf looks up its pod.
func (l *Leases) nameOf(h journal.Holder) string {
	if h.Netns != "" {
		if pod := l.node.claims.PodIn(h.Netns); pod != "" {
			return fmt.Sprintf("pod %s (by sriov-cni)", pod)
		}
	}
	return h.Name()
}

// CheckFree returns an error if the device of an attachment has had another holder since its sandbox ended. Then
// neither a retried DEL nor a restore may touch the device. If the claim has no device of the node, CheckFree checks
// the PCI address in the device-info file. It then ignores shared leases, because a PF may have many.
func (l *Leases) CheckFree(record *state.Claim, at *state.Attachment) error {
	switch {
	case l.node.Journal == nil:
		return nil
	case at.NodeDevice == nil:
		return l.checkNamed(at)
	case leaseID(at) == "" || at.NodeDevice.Shared():
		return nil
	}
	of, err := l.need(record.UID, at)
	if err == nil {
		of.Pods = []string{identity(at).UID}
		if at.Phase != state.Undeleted {
			of.Pods = append(of.Pods, record.Pod.UID)
		}
		err = l.node.Journal.Free(of)
	}
	if held, is := errors.AsType[*journal.HeldError](err); is {
		return l.leftAlone(at, leaseID(at), held.Holder)
	}
	return err
}

// checkNamed is CheckFree for an attachment without a device of the node, whose device only the device-info file names.
func (l *Leases) checkNamed(at *state.Attachment) error {
	address := at.PCI()
	if address == "" {
		return nil
	}
	holders, err := l.node.Journal.Holders(journal.OfDevice, sysfs.ID("pci", address))
	for _, h := range holders {
		own := h.Entry != nil && h.Entry.ContainerID == at.Sandbox || h.Netns != "" && h.Netns == at.Netns
		if h.Mode == journal.Exclusive && !own {
			return l.leftAlone(at, address, h)
		}
	}
	return err
}

func (l *Leases) leftAlone(at *state.Attachment, id string, by journal.Holder) error {
	return fmt.Errorf("%s (%s) is held by %s, and is not touched until it is free", at.Device, id, l.nameOf(by))
}

// Release ends the leases of an attachment after its DEL and restore.
func (l *Leases) Release(claim string, at *state.Attachment) error {
	if l.node.Journal == nil {
		return nil
	}
	return l.node.Journal.ReleaseIf(leaseRecord(claim, at), func() error { return nil })
}

// CollectLeases releases the leases of claims without a record. A claim may get a record, and then a lease, meanwhile.
// Therefore it looks for the record again while no lease changes. Without a journal it does nothing.
func CollectLeases(j *journal.Journal, isOnRecord func(uid string) bool) error {
	if j == nil {
		return nil
	}
	errNeeded := errors.New("the claim has a record")
	records, failed := j.Claims()
	for _, record := range records {
		uid, _, _ := strings.Cut(record, "=")
		unused := func() error {
			if isOnRecord(uid) {
				return errNeeded
			}
			return nil
		}
		if unused() != nil { // almost always; whoever has the lock of all leases does not delay this
			continue
		}
		if err := j.ReleaseIf(record, unused); !errors.Is(err, errNeeded) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// leaseID returns the [inventory.Device.LeaseID] of the device, or "" for [SoftwareDevice].
func leaseID(at *state.Attachment) string {
	if at.NodeDevice == nil {
		return ""
	}
	d := deviceOf(at.NodeDevice)
	return d.LeaseID()
}

// identity returns the identity of the pod whose sandbox has the attachment.
func identity(at *state.Attachment) pod.Identity {
	return pod.Identity{ContainerID: at.Sandbox, UID: at.Args.UID()}
}
