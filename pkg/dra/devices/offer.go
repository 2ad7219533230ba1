package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// survey is the result of reading the node. It is never modified.
type survey struct {
	list      []*inventory.Decision
	decisions map[string]inventory.Decision // the same, by device
	published inventory.Published           // includes the withheld devices
	withheld  map[string]*state.Attachment  // by device: see [Node.Withheld]
	unmatched []state.UnmatchedRule
	warnings  []string
	carriers  map[string]carrier // by device
	wait      time.Duration      // time until the published carriers may change
}

// Slices reads the node and returns the slices of its devices. ok is false if ctx has ended or the node cannot be read;
// keep the published slices then. Slices requests another publication for the time when its result may change.
func (n *Node) Slices(ctx context.Context) (list []inventory.Slice, ok bool) {
	if n.Inventory == nil {
		return nil, true
	}
	others, sharers, unknown := n.others(ctx, "")
	if ctx.Err() != nil { // the answer of Others may be incomplete
		return nil, false
	}
	wait := n.noteUnknown(unknown)
	n.readLabels(ctx)
	s, err := n.survey(others, sharers, unknown)
	n.publishIn(min(wait, s.wait, n.Inventory.Poll))
	if err != nil {
		n.Log.Error("cannot read the node's devices: keeping the published ones", "error", err)
		return nil, false
	}
	n.note(&s)
	n.leaveOffer(s)
	n.examine(s, time.Now())
	// Keep slices without devices. Each slice contains the number of slices in the pool, so a changed number would
	// rewrite all of them.
	for _, slice := range inventory.Slices(s.published) {
		devices := slices.DeleteFunc(slice.Devices, func(d resourceapi.Device) bool { return s.withheld[d.Name] != nil || n.lacksTaint(d) })
		list = append(list, inventory.Slice{Devices: n.numaLists(devices)})
	}
	return list, true
}

// lacksTaint reports whether the API server would drop the taint of a device, so that the scheduler would allocate it.
func (n *Node) lacksTaint(d resourceapi.Device) bool { return d.Taints != nil && n.untainted.Load() }

// Withheld returns the devices that must not be allocated again, because they are not restored yet.
func (n *Node) Withheld() map[string]*state.Attachment { return n.having((*state.Attachment).Withheld) }

// labelsPatience limits a request for the labels of the Node object, and is the wait after a failure.
const labelsPatience = 10 * time.Second

// readLabels reads the labels of the Node object if rules need them, at most once per half poll interval. After a
// failure it keeps the last known labels and schedules another publication of the slices.
func (n *Node) readLabels(ctx context.Context) {
	if !n.Inventory.Rules.SelectNodes() || time.Now().Before(n.nextLabels) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, labelsPatience)
	defer cancel()
	labels, err := n.Inventory.Labels(ctx)
	if err != nil {
		n.Log.Error("cannot read the labels of the Node object: using the last known ones", "known", n.selected.Load() != nil, "error", err)
		n.nextLabels = time.Now().Add(labelsPatience)
		n.publishIn(labelsPatience)
		return
	}
	n.nextLabels = time.Now().Add(n.Inventory.Poll / 2)
	rules := n.Inventory.Rules.On(labels)
	n.selected.Store(&rules)
}

// survey reads the node. others, sharers and unknown are the results of [Node.others].
func (n *Node) survey(others, sharers map[string]string, unknown error) (s survey, err error) {
	before := n.held()
	s.wait = never
	rules := n.selected.Load()
	if rules == nil {
		return s, fmt.Errorf("%s: rules select nodes, but the labels of this Node object are not known yet", n.Inventory.File)
	}
	host, err := n.Inventory.Host()
	if err != nil {
		return s, err
	}
	devices, warnings, err := inventory.Read(host)
	if err != nil {
		return s, err
	}
	previous := n.last.Load()
	carriers, wait := damp(devices, previous.carriers)
	held := n.held()
	for name, at := range before {
		if held[name] == nil { // the device may have been read while a pod still had it
			held[name] = at
			n.Publish()
		}
	}
	ours := inventory.Published{}
	for name, at := range held {
		ours[name] = Published(at.NodeDevice)
		if d, published := previous.published[name]; published {
			ours[name] = d
		}
		// The second port of a NIC, and a NIC without a PCI device, do not appear on the node while their interface
		// is in a pod.
		shown := slices.ContainsFunc(devices, func(d inventory.Device) bool { return d.Name == name })
		if !shown && at.NodeDevice.Place().Bus == "net" && n.Exists(at) == nil {
			devices = append(devices, deviceOf(at.NodeDevice))
		}
	}
	decisions := inventory.Decide(devices, *rules, inventory.DecideInput{
		Driver: n.Driver, Sharing: n.Sharing(), Ours: ours, Others: others, Sharers: sharers, Unknown: unknown != nil,
	})
	s = survey{
		list: decisions, decisions: make(map[string]inventory.Decision, len(decisions)), published: inventory.Pool(decisions, ours),
		withheld: n.Withheld(), unmatched: rules.Unmatched(decisions, host.Links), warnings: warnings,
		carriers: carriers, wait: wait,
	}
	for _, c := range decisions {
		s.decisions[c.Device.Name] = *c
	}
	for name, d := range s.published {
		if _, here := s.decisions[name]; !here && n.Inventory.EvictLost {
			d.Taints[0].Effect = resourceapi.DeviceTaintEffectNoExecute // of TaintGone
		}
	}
	return s, nil
}

// note stores a survey as the last one. It logs warnings and unmatched rules when they change, because pods that
// need such a device stay Pending.
func (n *Node) note(s *survey) {
	last := n.last.Swap(s)
	if !slices.Equal(s.warnings, last.warnings) {
		n.Log.Warn("problems with the node's devices", "warnings", s.warnings)
	}
	if !slices.Equal(s.unmatched, last.unmatched) {
		n.unmatched.Reset()
		for _, rule := range s.unmatched {
			n.unmatched.WithLabelValues(rule.Rule, rule.Nearest).Set(1)
			n.Log.Warn("a rule selects no device of this node: correct it, unless it is meant for other nodes", "file", n.Inventory.File, "rule", rule.Rule, "reason", rule.Why)
		}
	}
}

// others returns the devices that were allocated outside DRA, to one pod or shared: see [inventory.DecideInput]. A claim
// without a readable record counts as outside DRA, except the claim that is being prepared ("" = none), which may have
// its devices again. If others returns an error, the devices may be incomplete.
func (n *Node) others(ctx context.Context, prepared types.UID) (alone, shared map[string]string, unknown error) {
	given, unknown := n.Inventory.Others(ctx)
	alone, shared = map[string]string{}, map[string]string{}
	maps.Copy(alone, given)
	if n.Journal == nil {
		return alone, shared, unknown
	}
	onRecord := map[string]bool{string(prepared): true}
	for _, h := range n.claims.Holders(nil) {
		onRecord[h.Claim] = true
	}
	leased, err := n.Journal.Leased(journal.OfDevice)
	unknown = errors.Join(unknown, err)
	for _, id := range leased {
		holders, err := n.Journal.Holders(journal.OfDevice, id)
		unknown = errors.Join(unknown, err)
		for _, h := range holders {
			switch {
			case h.Claim != nil && onRecord[h.Claim.UID]:
			case h.Mode == journal.Exclusive:
				alone[journal.DeviceName(id)] = h.Name() + " has it"
			default:
				shared[journal.DeviceName(id)] = h.Name() + " shares its hardware"
			}
		}
	}
	return alone, shared, unknown
}

// noteUnknown records why the devices allocated outside DRA cannot be determined; nil = they are known. It logs a new
// reason. wait is the time until such a device may become free, or until a failed read is repeated.
func (n *Node) noteUnknown(why error) (wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if why != nil && (n.unknown == nil || n.unknown.Error() != why.Error()) {
		n.Log.Error("cannot tell which devices are allocated outside DRA: exclusive devices are tainted and will not be prepared", "error", why)
	}
	n.unknown = why
	switch wait = n.Inventory.Waits(); {
	case wait > 0:
		return wait
	case why != nil:
		return 10 * time.Second // Others may succeed then
	}
	return never
}

// held returns the attachments that hold devices of the node, by device. It omits lost devices.
func (n *Node) held() map[string]*state.Attachment {
	return n.having(func(at *state.Attachment) bool { return !at.Lost })
}

// having returns the attachments that have devices of the node and pass the test, by device. It reads their records,
// because the kubelet may have deleted the published slices.
func (n *Node) having(test func(*state.Attachment) bool) map[string]*state.Attachment {
	all := map[string]*state.Attachment{}
	for _, h := range n.claims.Holders(nil) {
		at := h.Attachment
		if at.NodeDevice != nil && test(at) && (all[at.Device] == nil || at.Note != nil) {
			all[at.Device] = at
		}
	}
	return all
}

// leaveOffer writes the offer for devinfoctl: see [state.Offer].
func (n *Node) leaveOffer(s survey) {
	offer := &state.Offer{Rules: n.Inventory.File, Unmatched: s.unmatched}
	for _, name := range slices.Sorted(maps.Keys(s.decisions)) {
		c := s.decisions[name]
		as, published := s.published[name]
		if c.Rule < 0 && !published {
			continue
		}
		one := state.Offered{Name: name, Ref: nodeDevice(c, as).Ref, Sharing: string(c.Sharing), ResourceName: inventory.Text(as.Attributes, inventory.ResourceName), Why: c.Why}
		if published { // a device that a claim holds stays published
			one.Sharing, one.Why = string(inventory.Sharing(as)), ""
		}
		if at := s.withheld[name]; at != nil {
			one.Why = "its last DEL failed, or it is not restored yet: " + at.DelError
		} else if n.lacksTaint(as) {
			one.Why = "it should have the taint " + as.Taints[0].Key + ", and the API server drops taints: enable the feature gate DRADeviceTaints"
		}
		offer.Devices = append(offer.Devices, one)
	}
	if reflect.DeepEqual(n.left, offer) {
		return
	}
	if err := state.WriteOffer(n.StateDir, offer); err != nil {
		n.Log.Warn("devinfoctl cannot show which devices are offered", "error", err)
		return
	}
	n.left = offer
}
