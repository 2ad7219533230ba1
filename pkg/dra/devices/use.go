package devices

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/grant"
)

// Note is what restoring a device needs. Only this package reads it.
type Note = json.RawMessage

// Take checks that the host can do without the device of an attachment, and notes its settings, for
// [Node.GiveBack]; nil = there is nothing to restore. A device whose restore was given up starts from its
// old note, unless another device is in its place: it may still have the settings of the former pod.
func (n *Node) Take(at *state.Attachment, old Note) (Note, error) {
	if at.NodeDevice == nil || at.NodeDevice.Shared() {
		return nil, nil
	}
	n.mu.Lock()
	d := n.last.decisions[at.Device].Device // since the claim was prepared it may have got a default route
	n.mu.Unlock()
	if why := d.UsedByHost(); why != "" {
		return nil, fmt.Errorf("device %s: %s: delete the pod, to have another one allocated", at.Device, why)
	}
	if n.Custody == nil {
		if at.Driver != "" {
			return nil, fmt.Errorf("device %s: driver: %s: this agent binds none", at.Device, at.Driver)
		}
		return nil, nil
	}
	former, err := n.Custody.Look(at.NodeDevice.Ref)
	if err == nil && old != nil {
		var noted restore.Former
		if err = json.Unmarshal(old, &noted); err == nil && !noted.IsReplaced(former) {
			former = noted
		}
	}
	if err == nil && at.Driver != "" && former.Driver != at.Driver {
		err = n.mayRebind(at, former)
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", at.Device, err)
	}
	return json.Marshal(former)
}

// mayRebind refuses to unbind a function in use from its driver.
func (n *Node) mayRebind(at *state.Attachment, former restore.Former) error {
	if n.Inventory == nil {
		return fmt.Errorf("driver: %s: this node offers no devices of its own", at.Driver)
	}
	host, err := n.Inventory.Host()
	if err != nil {
		return err
	}
	why, err := inventory.Busy(host, at.Device)
	switch {
	case err != nil:
		return err
	case why != "":
		return fmt.Errorf("driver: %s: it is busy: %s: free it, or select another device", at.Driver, why)
	}
	return n.Custody.MayBind(former, at.Driver)
}

// Bind binds the device to the kernel driver that the attachment names, if any.
func (n *Node) Bind(at *state.Attachment) error {
	former, ok := n.noteOf(at)
	if at.Driver == "" || !ok || former.Driver == at.Driver {
		return nil
	}
	err := n.Custody.Bind(former, at.Driver)
	n.Step("bound")
	if err != nil {
		return fmt.Errorf("device %s: driver: %s: %w", at.Device, at.Driver, err)
	}
	return nil
}

// noteOf returns the note of an attachment, which may be nil. ok is false if nothing can be done with it.
func (n *Node) noteOf(at *state.Attachment) (former restore.Former, ok bool) {
	if at == nil || at.Note == nil || n.Custody == nil {
		return former, false
	}
	if err := json.Unmarshal(at.Note, &former); err != nil {
		n.Log.Error("cannot read the note of a device", "device", at.Device, "error", err)
		return former, false
	}
	return former, true
}

// The states of a device that callers of [Node.State] have to know.
const (
	Replaced = restore.Replaced
	Gone     = restore.Gone
)

// State returns what has become of the device of an attachment, which may be nil; "" = unknown.
func (n *Node) State(at *state.Attachment) restore.State {
	former, ok := n.noteOf(at)
	if !ok {
		return ""
	}
	if at.BootID != n.BootID { // each boot makes all devices anew
		former.Inode = 0
	}
	now, err := n.Custody.State(former)
	if err != nil {
		n.Log.Warn("what has become of a device is not known", "device", at.Device, "error", err)
	}
	return now
}

// GiveBack restores the device of an attachment after its DEL. Notes of an earlier boot are void: booting
// resets devices. Repeat it after an error; if [IsAway], the device may be on its way back to the node.
func (n *Node) GiveBack(record *state.Claim, at *state.Attachment) error {
	if at.Note == nil || at.BootID != n.BootID || n.Custody == nil {
		return nil
	}
	if err := n.Leases.CheckFree(record, at); err != nil {
		return err
	}
	var former restore.Former
	if err := json.Unmarshal(at.Note, &former); err != nil {
		return fmt.Errorf("device %s: note: %w", at.Device, err)
	}
	did, err := n.Custody.Restore(former)
	for _, what := range did {
		n.metrics.mismatches.WithLabelValues(what, "true").Inc()
	}
	if did != nil {
		n.Log.Info("restored device settings that the CNI plugins left changed", "device", at.Device, "what", did)
	}
	switch {
	case errors.Is(err, restore.ErrGone):
		n.Log.Warn("a device that a pod had is gone", "device", at.Device, "error", err)
		return nil
	case err != nil:
		return fmt.Errorf("device %s: %w", at.Device, err)
	}
	return nil
}

// IsAway reports whether an error of [Node.GiveBack] says that the interface is not on the node.
func IsAway(err error) bool { return errors.Is(err, restore.ErrAway) }

// CountMismatches counts the settings that an error of [Node.GiveBack] names, once no more is tried.
func (n *Node) CountMismatches(err error) {
	what := []string{restore.Away}
	if m, is := errors.AsType[*restore.Mismatch](err); is {
		what = m.What
	}
	for _, what := range what {
		n.metrics.mismatches.WithLabelValues(what, "false").Inc()
	}
}

// Describe describes the exclusive device of an attachment as the devinfo plugin would. It returns nil if
// there is none, or if it cannot be described, which is no reason to fail.
func (n *Node) Describe(at *state.Attachment) *devinfo.Info {
	if n.Finder == nil || at.NodeDevice == nil || at.NodeDevice.Shared() {
		return nil
	}
	id := cmp.Or(at.NodeDevice.VDPA, at.NodeDevice.Aux, at.NodeDevice.PCI)
	found, err := n.Finder.Find(discovery.Target{
		DeviceIDs: []config.NamedID{{Key: "device", ID: id}}, Netns: at.Netns, IfName: at.IfName,
	})
	if err == nil {
		err = found.Problem
	}
	var info *devinfo.Info
	if err == nil && found.Info != nil {
		info = devinfo.Merge(nil, found.Info, nil)
		err = info.Validate().Err()
	}
	if err != nil {
		n.Log.Warn("the device cannot be described: its containers get no device information", "device", at.Device, "error", err)
		return nil
	}
	return info
}

// Attributes returns what metadata says of the device of an attachment: the attributes that it was
// published with, and those that follow from its device information, which may be nil. A device with a
// kernel driver of its own has no interface on the node.
func (n *Node) Attributes(at *state.Attachment, info *devinfo.Info) map[string]resourceapi.DeviceAttribute {
	all := map[string]resourceapi.DeviceAttribute{}
	if at.NodeDevice != nil {
		for name, value := range at.NodeDevice.Published.Attributes {
			all[string(name)] = value
		}
	}
	if at.Driver != "" {
		all[string(inventory.AttrDriver)] = resourceapi.DeviceAttribute{StringValue: &at.Driver}
		delete(all, string(inventory.AttrIfName))
	}
	if info != nil && n.Finder != nil {
		warn := func(what string) { n.Log.Warn("device metadata", "left out", what) }
		maps.Copy(all, metadata.Attributes(info, n.Finder.Sys, warn))
		if info.VhostUser != nil {
			mtu := metadata.MTUOf(at.Result, at.List, at.IfName, at.Netns)
			all[metadata.MTU] = resourceapi.DeviceAttribute{IntValue: &mtu}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

// Grant returns the device nodes and mounts that the containers of an attachment get for a device, which
// may be nil. It leases the IOMMU group that they belong to.
func (n *Node) Grant(record *state.Claim, at *state.Attachment, info *devinfo.Info) (grant.Grant, error) {
	if n.Granter == nil || info == nil {
		return grant.Grant{}, nil
	}
	g := *n.Granter
	g.Pod = identity(at)
	given, err := g.ForInterface(n.Finder, at.Netns, at.IfName, info)
	if err == nil {
		err = n.Leases.holdGroup(record, at, given.IOMMUGroup)
	}
	return given, err
}
