package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"devinfo-cni.io/pkg/dra/devices/custody"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/sysfs"
)

// Inventory are the node's own devices, which a node offers beside [DeviceName]: see
// package inventory. All but File, Others, Waits and Events is required.
type Inventory struct {
	Rules inventory.Rules                // which are offered, and as what
	File  string                         // with the rules, for people; may be ""
	Host  func() (inventory.Host, error) // reads the node
	// Others are the devices that somebody else has given away: see [inventory.Situation].
	// Beside an error it returns what was known last; no exclusive device is prepared then.
	Others func(context.Context) (map[string]string, error)
	// Waits is after how long Others may know of fewer; 0 = they are as they are. It may be nil.
	Waits func() time.Duration
	// Lineage is [sysfs.FS.Lineage] of the node.
	Lineage func(device string) ([]sysfs.Object, error)
	// Events tells that the node may have changed, until ctx ends; nil = only Times.Poll.
	Events func(ctx context.Context) (<-chan struct{}, error)
	Times  inventory.Times
	// EvictLost has pods evicted whose devices the node has lost.
	EvictLost bool
	// CarrierGrace is for how long a device may be without carrier and well.
	CarrierGrace time.Duration
}

// nodeDevices is what the agent remembers of what it publishes.
type nodeDevices struct {
	mu        sync.Mutex
	last      inventory.Published           // as they were last published
	decisions map[string]inventory.Decision // by which they were; never changed
	unshared  atomic.Bool                   // the API server cannot share devices
	warned    []string                      // what was said last
	unknown   error                         // why it is not known what others have; nil = it is
	again     *time.Timer                   // when others are asked again; nil = by the poll
	left      *state.Offer                  // what was left for people last
	idle      []state.Idle                  // the rules without a device, as was said last
	health    health
}

// survey looks at the node: what is decided of each of its devices, by name, and the
// slices that follow. It is given what [Agent.others] has returned.
func (a *Agent) survey(others map[string]string, unknown error) (map[string]inventory.Decision, []inventory.Slice, error) {
	before := a.held()
	host, err := a.Inventory.Host()
	if err != nil {
		return nil, nil, err
	}
	devices, warnings, err := inventory.Read(host)
	if err != nil {
		return nil, nil, err
	}
	held := a.held()
	for name, at := range before {
		if held[name] == nil { // it may have been read while a pod still had it
			held[name] = at
			a.offerSoon()
		}
	}
	devices = append(devices, a.hidden(held, devices)...)
	ours, last := held.as(), inventory.Published{}
	for name, at := range held {
		last[name] = at.Node.Published
	}
	withheld := a.withheld()
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	if !slices.Equal(warnings, a.node.warned) {
		a.Log.Warn("the node's devices", "warnings", warnings)
		a.node.warned = warnings
	}
	maps.Copy(last, a.node.last)
	decisions := inventory.Decide(devices, a.Inventory.Rules, inventory.Situation{
		Driver: a.Driver, Sharing: !a.node.unshared.Load(),
		Ours: ours, Last: last, Withheld: withheld, Others: others, Unknown: unknown != nil,
	})
	byName := make(map[string]inventory.Decision, len(decisions))
	for _, d := range decisions {
		byName[d.Device.Name] = d
	}
	a.noteIdle(a.Inventory.Rules.Idle(decisions, host.Links))
	list := inventory.Slices(decisions, ours, last)
	if a.Inventory.EvictLost {
		inventory.Evict(list, inventory.TaintGone)
	}
	return byName, list, nil
}

// noteIdle tells, when that changes, which rules name no device: pods stay Pending for no other
// reason that they could see. The mutex of a.node must be held.
func (a *Agent) noteIdle(list []state.Idle) {
	if slices.Equal(list, a.node.idle) {
		return
	}
	a.node.idle = list
	a.metrics.noteIdle(list)
	for _, idle := range list {
		a.Log.Warn("a rule names no device of this node: correct it, unless it is meant for others", "file", a.Inventory.File, "rule", idle.Rule, "reason", idle.Why)
	}
}

// others are the devices that somebody else has: see [inventory.Situation]. Beside an error
// they may be some of them.
func (a *Agent) others(ctx context.Context) (map[string]string, error) {
	all, unknown := map[string]string{}, error(nil)
	if a.Inventory.Others != nil {
		var given map[string]string
		given, unknown = a.Inventory.Others(ctx)
		maps.Copy(all, given)
	}
	if a.Journal == nil {
		return all, unknown
	}
	leased, err := a.Journal.Leased(journal.OfDevice)
	unknown = errors.Join(unknown, err)
	for _, id := range leased {
		holders, err := a.Journal.Holders(journal.OfDevice, id)
		if err != nil {
			return all, errors.Join(unknown, err)
		}
		if len(holders) > 0 && holders[0].Mode == journal.Exclusive && holders[0].Entry != nil {
			all[journal.DeviceName(id)] = holders[0].String() + " has it"
		}
	}
	return all, unknown
}

// OthersKnown says why it is not known what others have of the node's devices; nil = it is.
func (a *Agent) OthersKnown() error {
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	return a.node.unknown
}

// noteUnknown tells, when that changes, whether it is known what others have.
func (a *Agent) noteUnknown(why error) {
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	note(a.metrics.known, why == nil)
	if why != nil && (a.node.unknown == nil || a.node.unknown.Error() != why.Error()) {
		a.Log.Error("what others have of the node's devices is not known: exclusive ones are tainted, and none is prepared", "error", why)
	}
	a.node.unknown = why
}

// unknownFor is after how long others are asked again who have not answered.
const unknownFor = 10 * time.Second

// askAgain has what others have asked for again once it may be less, or known, not only by the
// next poll. There is one timer, however often the node changes.
func (a *Agent) askAgain(unknown error) {
	if a.Inventory.Waits == nil {
		return
	}
	wait := a.Inventory.Waits()
	if wait == 0 && unknown != nil {
		wait = unknownFor
	}
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	if a.node.again != nil {
		a.node.again.Stop()
	}
	if wait > 0 {
		a.node.again = time.AfterFunc(wait, a.offerSoon)
	}
}

// holdings are attachments of the node's own devices, by these devices' names.
type holdings map[string]*state.Attachment

// held are those of the claims on record. They say as what the devices were published, too: the
// kubelet may have removed the slices.
func (a *Agent) held() holdings {
	all := holdings{}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.claims {
		for _, at := range slices.Concat(c.record.Attachments, c.record.Abandoned) {
			if at.Node != nil && !at.Lost && (all[at.Device] == nil || at.Former != nil) {
				all[at.Device] = &at
			}
		}
	}
	return all
}

// as says how each is held.
func (h holdings) as() map[string]inventory.As {
	all := map[string]inventory.As{}
	for name, at := range h {
		all[name] = offeredAs(at.Node)
	}
	return all
}

// hidden are those that are here, and that the node does not show: of a NIC on no PCI bus, or a
// second port, which a pod has, it shows no interface, and they are nothing else.
func (a *Agent) hidden(held holdings, shown []inventory.Device) (list []inventory.Device) {
	for name, at := range held {
		is := func(d inventory.Device) bool { return d.Name == name }
		if deviceID(at) == "" && !slices.ContainsFunc(shown, is) && a.stateOf(at) == custody.Here {
			list = append(list, deviceOf(at.Node))
		}
	}
	return list
}

// ownSlices are those of the node's own devices; ok is false if what there is now cannot be
// said.
func (a *Agent) ownSlices(ctx context.Context) (list []inventory.Slice, ok bool) {
	if a.Inventory == nil {
		return nil, true
	}
	others, unknown := a.others(ctx)
	if ctx.Err() != nil { // others did not answer because of that
		return nil, false
	}
	a.noteUnknown(unknown)
	a.askAgain(unknown)
	decisions, list, err := a.survey(others, unknown)
	if err != nil {
		a.Log.Error("the node's devices cannot be read: what was published of them stays", "error", err)
		return nil, false
	}
	withheld := a.withheld()
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	a.node.last, a.node.decisions = inventory.PublishedIn(list), decisions
	a.leaveOffer(decisions, withheld)
	a.examine(decisions, withheld, time.Now())
	return list, true
}

// hostNeeds says why the host cannot give a device away, as it was last looked at; "" = it
// can. Since the claim was prepared it may have got a default route.
func (a *Agent) hostNeeds(device string) string {
	a.node.mu.Lock()
	defer a.node.mu.Unlock()
	d := a.node.decisions[device].Device
	return d.UsedByHost()
}

// leaveOffer tells people on the node what is offered: see [state.Offer]. The mutex of
// a.node must be held.
func (a *Agent) leaveOffer(decisions map[string]inventory.Decision, withheld map[string]bool) {
	offer := &state.Offer{Rules: a.Inventory.File, Idle: a.node.idle}
	for _, name := range slices.Sorted(maps.Keys(decisions)) {
		c := decisions[name]
		as, published := a.node.last[name]
		if c.Rule < 0 && !published {
			continue
		}
		d := nodeDevice(c.Device, as)
		one := state.Offered{Name: name, Ref: d.Ref, As: string(c.As), Why: c.Why}
		if published { // be it because a claim holds it
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
	if a.node.left != nil && reflect.DeepEqual(a.node.left, offer) {
		return
	}
	if err := state.WriteOffer(a.StateDir, offer); err != nil {
		a.Log.Warn("devinfoctl will not know what is offered", "error", err)
		return
	}
	a.node.left = offer
}

// watchNode has the devices published again whenever the node may have changed, until ctx
// ends.
func (a *Agent) watchNode(ctx context.Context) {
	var events <-chan struct{}
	if a.Inventory.Events != nil {
		var err error
		if events, err = a.Inventory.Events(ctx); err != nil {
			a.Log.Error(fmt.Sprintf("changes of the node's devices are found by looking every %v", a.Inventory.Times.Poll), "error", err)
		}
	}
	inventory.Watch(ctx, events, a.Inventory.Times, func(context.Context) { a.offerSoon() })
}

// heldIn gives the device that a claim on record has by that name; nil = none.
func heldIn(record *state.Claim, pool, device string) *state.NodeDevice {
	for _, at := range slices.Concat(record.Attachments, record.Abandoned) {
		if at.Pool == pool && at.Device == device {
			return at.Node
		}
	}
	return nil
}
