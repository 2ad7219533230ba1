package devices

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/settings"
)

// Snapshot returns the settings of an attachment's device for [Node.Restore]; nil = nothing to restore. It returns an
// error if the host uses the device. After a restore that was given up in this boot, the device may still have the settings
// of its former pod, so Snapshot returns the note of that one, unless a different device is in its place.
func (n *Node) Snapshot(at *state.Attachment) (json.RawMessage, error) {
	if at.NodeDevice == nil || at.NodeDevice.Shared() {
		return nil, nil
	}
	why, err := n.usedByHost(at.Device) // it may have got a default route since Prepare
	switch {
	case err != nil:
		return nil, fmt.Errorf("device %s: %w", at.Device, err)
	case why != "":
		return nil, fmt.Errorf("device %s: %s: delete the pod, so that it gets a different device", at.Device, why)
	case n.Custody == nil && at.Driver != "":
		return nil, fmt.Errorf("device %s: driver: %s: the driver binds no devices with --capture", at.Device, at.Driver)
	case n.Custody == nil:
		return nil, nil
	}
	snapshot, err := n.Custody.Look(at.NodeDevice.Ref)
	if err == nil {
		err = n.Custody.Alone(snapshot)
	}
	for _, h := range n.claims.Holders(at) {
		noted, ok := n.noteOf(h.Attachment)
		if ok && err == nil && h.Attachment.Phase == state.Undeleted && h.Attachment.BootID == n.BootID && !noted.IsReplaced(snapshot) {
			snapshot = noted
		}
	}
	if err == nil && at.Driver != "" && snapshot.Driver != at.Driver {
		err = n.mayRebind(at, snapshot)
	}
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", at.Device, err)
	}
	if snapshot.Settings[settings.Ethtool] != "" {
		n.oldKernel.Do(func() {
			n.Log.Warn("the kernel is older than 5.6: what pods change with ethtool is neither seen nor restored")
		})
	}
	snapshot.Reset, snapshot.Withhold = restore.ResetMode(at.NodeDevice.Reset), at.NodeDevice.Withhold
	if of := n.last.Load().decisions[at.Device]; snapshot.Reset == "" { // recorded by an older build
		snapshot.Reset, snapshot.Withhold = restore.ResetMode(of.Reset), of.Withhold
	}
	return config.Encode(snapshot), nil
}

// usedByHost returns how the host uses a device, as the last survey has found it; "" = it does not. Before the first survey
// of this process it reads the node.
func (n *Node) usedByHost(device string) (why string, err error) {
	last := n.last.Load()
	d := last.decisions[device].Device
	if last.decisions == nil && n.Inventory != nil {
		var host inventory.Host
		if host, err = n.Inventory.Host(); err == nil {
			d, err = inventory.Find(host, device)
		}
	}
	return d.UsedByHost(), err
}

// mayRebind returns an error if the function is in use or cannot be bound to the driver.
func (n *Node) mayRebind(at *state.Attachment, snapshot restore.Snapshot) error {
	if n.Inventory == nil {
		return fmt.Errorf("driver: %s: the node offers no devices of its own", at.Driver)
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
		return fmt.Errorf("driver: %s: the device is in use: %s: free it, or select a different device", at.Driver, why)
	}
	return n.Custody.MayBind(snapshot, at.Driver)
}

// Bind binds the device to the kernel driver of the attachment, if it has one.
func (n *Node) Bind(at *state.Attachment) error {
	snapshot, ok := n.noteOf(at)
	if at.Driver == "" || !ok || snapshot.Driver == at.Driver {
		return nil
	}
	err := n.Custody.Bind(snapshot, at.Driver)
	n.Reached("bound")
	if err != nil {
		return fmt.Errorf("device %s: driver: %s: %w", at.Device, at.Driver, err)
	}
	return nil
}

// noteOf returns the note of an attachment, which may be nil. ok is false if there is none.
func (n *Node) noteOf(at *state.Attachment) (snapshot restore.Snapshot, ok bool) {
	if at == nil || at.Note == nil || n.Custody == nil {
		return snapshot, false
	}
	return decoded[restore.Snapshot](at.Note), true
}

// Exists returns nil if the device of an attachment, which may be nil, still exists, and [restore.ErrGone] if the node has
// lost it or has a different one in its place.
func (n *Node) Exists(at *state.Attachment) error {
	snapshot, ok := n.noteOf(at)
	if !ok {
		return errors.New("there is no note of it")
	}
	if at.BootID != n.BootID { // each boot creates all devices again, with other inodes
		snapshot.Inode = 0
	}
	_, err := n.Custody.Inode(snapshot)
	if err != nil && !errors.Is(err, restore.ErrGone) {
		n.Log.Warn("cannot tell whether a device still exists", "device", at.Device, "error", err)
	}
	return err
}

// Restore restores the device of an attachment after its DEL. It ignores notes of an earlier boot, because booting
// resets devices. Repeat it after an error. If [IsOnItsWay] reports true, the error may end by itself. different
// describes settings that remain different although the device may be offered again; "" = none.
func (n *Node) Restore(record *state.Claim, at *state.Attachment) (different string, err error) {
	snapshot, ok := n.noteOf(at)
	if !ok || at.BootID != n.BootID {
		return "", nil
	}
	if err := n.Leases.CheckFree(record, at); err != nil {
		return "", err
	}
	did, err := n.Custody.Restore(snapshot)
	rebound := slices.ContainsFunc(did, func(what string) bool { return what == restore.Driver || what == restore.Reset })
	for _, what := range did {
		if what != restore.Reset {
			n.mismatches.WithLabelValues(what, "true").Inc()
		}
	}
	if did != nil {
		n.Log.Info("restored device settings that the CNI plugins left changed", "device", at.Device, "what", did)
	}
	m, differs := errors.AsType[*restore.Mismatch](err)
	if rebound {
		snapshot.Reset = restore.Never // once is enough
		at.Note = config.Encode(snapshot)
	}
	switch {
	case rebound && at.Phase != state.Undeleted && (err == nil || differs && m.Harmless):
		return "", fmt.Errorf("device %s: %w", at.Device, errUnsettled)
	case errors.Is(err, restore.ErrGone):
		n.Log.Warn("a device that a pod had no longer exists", "device", at.Device, "error", err)
		return "", nil
	case differs && m.Harmless:
		n.CountMismatches(err)
		n.Log.Warn("a pod left a device different from before; it is offered again", "device", at.Device, "error", err)
		different = fmt.Sprintf("device %s is offered again, but %v; to withhold such devices, set onDifference: withhold in their rule", at.Device, m)
	case err != nil:
		return "", fmt.Errorf("device %s: %w", at.Device, err)
	}
	return different, nil
}

// errUnsettled makes [Node.Restore] look at the name and the MAC of an interface again some time after its driver was
// bound.
var errUnsettled = errors.New("its driver has just been bound, so that udev may still set its name and MAC")

// IsOnItsWay reports whether an error of [Node.Restore] means that the interface is not on the node, or that udev may
// still configure it.
func IsOnItsWay(err error) bool {
	return errors.Is(err, restore.ErrNotOnNode) || errors.Is(err, errUnsettled)
}

// CountMismatches counts the settings in an error of [Node.Restore]. Call it when the restore is given up.
func (n *Node) CountMismatches(err error) {
	what := []string{restore.Away}
	if m, is := errors.AsType[*restore.Mismatch](err); is {
		what = m.Settings
	}
	for _, what := range what {
		n.mismatches.WithLabelValues(what, "false").Inc()
	}
}

// Describe returns the device information of the exclusive device of an attachment, as the devinfo plugin writes it.
// It returns nil if there is none, and logs why a description fails.
func (n *Node) Describe(at *state.Attachment) *devinfo.Info {
	if n.Finder == nil || at.NodeDevice == nil || at.NodeDevice.Shared() || deviceIDs(at) == nil {
		return nil
	}
	found, err := n.Finder.Find(discovery.Target{DeviceIDs: deviceIDs(at), Netns: at.Netns, IfName: at.IfName})
	if err == nil {
		err = found.Problem
	}
	var info *devinfo.Info
	if err == nil && found.Info != nil {
		info = devinfo.Merge(nil, found.Info, nil)
		err = info.Validate().Err()
	}
	if err != nil {
		n.Log.Warn("cannot describe the device, so its containers get no device information", "device", at.Device, "error", err)
		return nil
	}
	return info
}

// Shown returns the facts to show for a device: those of its device information, and for the same device the published ones,
// which fill the gaps.
func Shown(at *state.Attachment) (d view.Device) {
	if info, err := devinfo.Parse(at.Info); err == nil {
		d = view.Of(info)
	}
	if at.NodeDevice == nil {
		return d
	}
	published := Published(at.NodeDevice).Attributes
	text := func(name resourceapi.QualifiedName) string { return inventory.Text(published, name) }
	switch address := text(inventory.PCIBusID); {
	case d.Device != "" && d.Device != address:
		return d
	case address != "":
		d.Type, d.Device = string(devinfo.TypePCI), address
	}
	d.PF, d.Representor = cmp.Or(d.PF, text(inventory.AttrPFPCIBusID)), cmp.Or(d.Representor, text(inventory.AttrRepresentor))
	d.RDMA = cmp.Or(d.RDMA, text(inventory.AttrRDMADevice))
	return d
}

// deviceIDs names the device of an attachment. It is nil for a NIC without a PCI address, and for a further port of a function,
// which must not be described as the function.
func deviceIDs(at *state.Attachment) []config.NamedID {
	id := cmp.Or(at.NodeDevice.VDPA, at.NodeDevice.Aux, at.NodeDevice.PCI)
	if id == "" {
		return nil
	}
	return []config.NamedID{{Key: "device", ID: id}}
}
