package devices

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
)

// Slices surveys the node and returns the slices of its devices. ok is false if the node or its claims
// cannot be read: what was published stays.
func (n *Node) Slices(ctx context.Context) (list []inventory.Slice, ok bool) {
	if n.Inventory == nil {
		return nil, true
	}
	others, unknown := n.others(ctx)
	if ctx.Err() != nil { // which is why Others failed
		return nil, false
	}
	n.noteUnknown(unknown)
	decisions, list, err := n.survey(others, unknown)
	if err != nil {
		n.Log.Error("cannot read the node's devices: the published ones stay", "error", err)
		return nil, false
	}
	withheld, last := n.Withheld(), inventory.PublishedIn(list)
	n.mu.Lock()
	n.last, n.decisions = last, decisions
	n.mu.Unlock()
	n.leaveOffer(decisions, last, withheld)
	n.examine(decisions, last, withheld, time.Now())
	return without(list, withheld), true
}

// without removes withheld devices. Empty slices stay: all slices of a pool contain their number, so
// with one less all others would be written again.
func without(list []inventory.Slice, withheld map[string]bool) (rest []inventory.Slice) {
	for _, s := range list {
		devices := slices.DeleteFunc(slices.Clone(s.Devices), func(d resourceapi.Device) bool { return withheld[d.Name] })
		rest = append(rest, inventory.Slice{Devices: devices})
	}
	return rest
}

// Withheld returns the devices that no other claim may get because they are not restored yet, by name.
func (n *Node) Withheld() map[string]bool {
	devices := map[string]bool{}
	for _, h := range n.claims.Holders() {
		if h.Attachment.Withheld() {
			devices[h.Attachment.Device] = true
		}
	}
	return devices
}

// survey reads the node. It returns what is decided of each device, by name, and the slices that follow.
// others and unknown are the results of [Node.others].
func (n *Node) survey(others map[string]string, unknown error) (map[string]inventory.Decision, []inventory.Slice, error) {
	before := n.held()
	host, err := n.Inventory.Host()
	if err != nil {
		return nil, nil, err
	}
	devices, warnings, err := inventory.Read(host)
	if err != nil {
		return nil, nil, err
	}
	held := n.held()
	for name, at := range before {
		if held[name] == nil { // the device may have been read while a pod still had it
			held[name] = at
			n.Publish()
		}
	}
	devices = append(devices, n.hidden(held, devices)...)
	withheld := n.Withheld()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(warnings, n.warned) {
		n.Log.Warn("the node's devices", "warnings", warnings)
		n.warned = warnings
	}
	ours, last := held.as(), inventory.Published{}
	for name, at := range held {
		last[name] = at.Node.Published
	}
	maps.Copy(last, n.last)
	decisions := inventory.Decide(devices, n.Inventory.Rules, inventory.Situation{
		Driver: n.Driver, Sharing: !n.unshared,
		Ours: ours, Last: last, Withheld: withheld, Others: others, Unknown: unknown != nil,
	})
	byName := make(map[string]inventory.Decision, len(decisions))
	for _, d := range decisions {
		byName[d.Device.Name] = d
	}
	n.noteIdle(n.Inventory.Rules.Idle(decisions, host.Links))
	list := inventory.Slices(decisions, ours, last)
	if n.Inventory.EvictLost {
		inventory.Evict(list, inventory.TaintGone)
	}
	return byName, list, nil
}

// noteIdle logs the rules without a device when they change: pods that need one stay Pending. The mutex
// must be held.
func (n *Node) noteIdle(list []state.Idle) {
	if slices.Equal(list, n.idle) {
		return
	}
	n.idle = list
	n.metrics.noteIdle(list)
	for _, idle := range list {
		n.Log.Warn("a rule names no device of this node: correct it, unless it is meant for other nodes", "file", n.Inventory.File, "rule", idle.Rule, "reason", idle.Why)
	}
}

// others returns the devices that were allocated outside DRA: see [inventory.Situation]. Beside an error
// the result may be incomplete.
func (n *Node) others(ctx context.Context) (map[string]string, error) {
	all, unknown := map[string]string{}, error(nil)
	if n.Inventory.Others != nil {
		var given map[string]string
		given, unknown = n.Inventory.Others(ctx)
		maps.Copy(all, given)
	}
	if n.Journal == nil {
		return all, unknown
	}
	leased, err := n.Journal.Leased(journal.OfDevice)
	unknown = errors.Join(unknown, err)
	for _, id := range leased {
		holders, err := n.Journal.Holders(journal.OfDevice, id)
		if err != nil {
			return all, errors.Join(unknown, err)
		}
		if len(holders) > 0 && holders[0].Mode == journal.Exclusive && holders[0].Entry != nil {
			all[journal.DeviceName(id)] = holders[0].String() + " has it"
		}
	}
	return all, unknown
}

// unknownFor is after how long Others is called again after an error.
const unknownFor = 10 * time.Second

// noteUnknown logs whether the devices allocated outside DRA are known, when that changes. It has the
// slices published again once there may be fewer of them, with one timer however often it is called.
func (n *Node) noteUnknown(why error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.metrics.known.Set(map[bool]float64{true: 1}[why == nil])
	if why != nil && (n.unknown == nil || n.unknown.Error() != why.Error()) {
		n.Log.Error("cannot tell which devices are allocated outside DRA: exclusive devices are tainted and will not be prepared", "error", why)
	}
	n.unknown = why
	if n.Inventory.Waits == nil {
		return
	}
	wait := n.Inventory.Waits()
	if wait == 0 && why != nil {
		wait = unknownFor
	}
	if n.again != nil {
		n.again.Stop()
	}
	if wait > 0 {
		n.again = time.AfterFunc(wait, n.Publish)
	}
}

// holdings are attachments of the node's devices, by device name.
type holdings map[string]*state.Attachment

// held returns the attachments on record. Each has the device as it was published: the kubelet may have
// removed the slices.
func (n *Node) held() holdings {
	all := holdings{}
	for _, h := range n.claims.Holders() {
		at := h.Attachment
		if at.Node != nil && !at.Lost && (all[at.Device] == nil || at.Note != nil) {
			all[at.Device] = at
		}
	}
	return all
}

// as returns how each device is held.
func (h holdings) as() map[string]inventory.As {
	all := map[string]inventory.As{}
	for name, at := range h {
		all[name] = offeredAs(at.Node)
	}
	return all
}

// hidden returns the held devices that the node does not show although they exist. The second port of a
// NIC, and a NIC that is on no PCI bus, have no trace on the node while their interface is in a pod.
func (n *Node) hidden(held holdings, shown []inventory.Device) (list []inventory.Device) {
	for name, at := range held {
		is := func(d inventory.Device) bool { return d.Name == name }
		if deviceID(at) == "" && !slices.ContainsFunc(shown, is) && n.State(at) == Present {
			list = append(list, deviceOf(at.Node))
		}
	}
	return list
}

// leaveOffer writes what is offered for devinfoctl: see [state.Offer].
func (n *Node) leaveOffer(decisions map[string]inventory.Decision, last inventory.Published, withheld map[string]bool) {
	n.mu.Lock()
	offer, left := &state.Offer{Rules: n.Inventory.File, Idle: n.idle}, n.left
	n.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(decisions)) {
		c := decisions[name]
		as, published := last[name]
		if c.Rule < 0 && !published {
			continue
		}
		d := nodeDevice(c.Device, as)
		one := state.Offered{Name: name, Ref: d.Ref, As: string(c.As), Why: c.Why}
		if published { // also because a claim holds it
			one.As, one.Why = string(offeredAs(d)), ""
		}
		if id := as.Attributes[inventory.ResourceName].StringValue; id != nil {
			one.ResourceName = *id
		}
		if withheld[name] {
			one.Why = "its last DEL has failed, or it is not yet what it was"
		}
		offer.Devices = append(offer.Devices, one)
	}
	if left != nil && reflect.DeepEqual(left, offer) {
		return
	}
	if err := state.WriteOffer(n.StateDir, offer); err != nil {
		n.Log.Warn("devinfoctl will not know what is offered", "error", err)
		return
	}
	n.mu.Lock()
	n.left = offer
	n.mu.Unlock()
}
