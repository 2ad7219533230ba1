package dra

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
)

// hold takes the exclusive devices of attachments, so that the devinfo plugin lets nobody
// else have them. The error says which attachment's is somebody else's already: Multus has
// attached the pod before the agent hears of it, or a claim has not given it back.
func (a *Agent) hold(c *claim, which []int, sb *sandbox) (n int, err error) {
	for _, n := range which {
		at := &c.record.Attachments[n]
		id := exclusiveID(at)
		if id == "" {
			continue
		}
		err := a.otherClaim(c, at)
		if err == nil && a.Journal != nil {
			err = a.holdFor(c, at, id, sb)
		}
		if err != nil {
			return n, &execError{ReasonNode, err}
		}
	}
	return 0, nil
}

func (a *Agent) holdFor(c *claim, at *state.Attachment, id string, sb *sandbox) error {
	k := journal.Key{Network: at.Network, ContainerID: sb.id, IfName: at.IfName}
	who, err := a.holderOf(at.Node, id, k, "")
	if err != nil {
		return err
	}
	if who != "" {
		return fmt.Errorf("%s (%s) is held by %s: pod %s/%s (%s) cannot have it too: ask for a device once, by a claim or by Multus",
			at.Device, id, who, sb.pod.Namespace, sb.pod.Name, at.IfName)
	}
	return a.Journal.Hold(id, journal.Holder{Key: k, Netns: sb.netns, Pod: sb.pod.Namespace + "/" + sb.pod.Name, Claim: c.name()})
}

// otherClaim is an error if another claim has not given back the device of an attachment:
// its pod may have been deleted by force, or its DEL, though it was given up, be under way.
func (a *Agent) otherClaim(c *claim, at *state.Attachment) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.claims {
		has := func(held state.Attachment) bool { return held.Owes() && sameDevice(&held, at) }
		if other != c && (slices.ContainsFunc(other.record.Attachments, has) || other.doing == doDel && slices.ContainsFunc(other.record.Abandoned, has)) {
			return fmt.Errorf("device %s: claim %s has not given it back yet: it is attached once that is done", at.Device, other.name())
		}
	}
	return nil
}

// notOthers is an error if somebody else has got the device of an attachment since its
// sandbox has ended: neither DEL nor restoring may take it from there.
func (a *Agent) notOthers(at *state.Attachment) error {
	id := exclusiveID(at)
	if a.Journal == nil || id == "" {
		return nil
	}
	who, err := a.holderOf(at.Node, id, journal.Key{Network: at.Network, ContainerID: at.Sandbox, IfName: at.IfName}, at.Netns)
	if err == nil && who != "" {
		err = fmt.Errorf("%s (%s) is held by %s by now, and left alone until it is free", at.Device, id, who)
	}
	return err
}

// letGo is for an attachment that has nothing any more.
func (a *Agent) letGo(at *state.Attachment) error {
	id := exclusiveID(at)
	if a.Journal == nil || id == "" {
		return nil
	}
	return a.Journal.LetGo(id, journal.Key{Network: at.Network, ContainerID: at.Sandbox, IfName: at.IfName})
}

// exclusiveID is what Multus knows the attachment's device by; "" = it is none of the
// node's own, or is shared.
func exclusiveID(at *state.Attachment) string {
	if at.Node == nil || at.Node.Shared() {
		return ""
	}
	d := deviceOf(at.Node)
	return cmp.Or(d.ID(), d.VDPA)
}

// holderOf names the pod that Multus, or another runtime, has given the device to; "" =
// there is none but an attachment, and sriov-cni's lock for a network namespace.
func (a *Agent) holderOf(d *state.NodeDevice, id string, but journal.Key, netns string) (string, error) {
	keys, err := a.Journal.All()
	if err != nil {
		return "", fmt.Errorf("who has %s: %w", id, err)
	}
	for _, key := range keys {
		if key.ContainerID == but.ContainerID && key.IfName == but.IfName {
			continue
		}
		e, err := a.Journal.Get(key)
		if err != nil && !errors.As(err, new(*store.CorruptError)) && !errors.As(err, new(*journal.FormatError)) {
			return "", fmt.Errorf("who has %s: %w", id, err)
		}
		if e != nil && isOf(e, d, id) && e.OfBoot(a.BootID) && !errors.Is(a.Netns(e.Netns), link.ErrNoNetns) {
			return fmt.Sprintf("%s (%s, network %s)", podOf(e), e.IfName, e.Network), nil
		}
	}
	return a.lockerOf(id, netns)
}

// isOf says whether an attachment on record has the device to itself.
func isOf(e *journal.Entry, d *state.NodeDevice, id string) bool {
	for _, asked := range e.Asked.DeviceIDs {
		if strings.EqualFold(asked.ID, id) {
			return true
		}
	}
	switch {
	case e.Asked.FollowLower: // of the device that it is on, which others use too
		return false
	case e.Device.Type == string(devinfo.TypePCI):
		return d.PCI != "" && e.Device.ID == d.PCI
	}
	return d.VDPA != "" && e.Device.ID == d.VDPA
}

func podOf(e *journal.Entry) string {
	if namespace, name := e.PodName(); name != "" {
		return "pod " + namespace + "/" + name
	}
	return "container " + e.ContainerID
}

// lockerOf is holderOf for what sriov-cni alone knows of.
func (a *Agent) lockerOf(id, but string) (string, error) {
	if a.Inventory == nil || a.Inventory.Locks == nil {
		return "", nil
	}
	locks, err := a.Inventory.Locks()
	if err != nil || locks[id] == "" || locks[id] == but {
		return "", err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, sb := range a.sandboxes {
		if locks[id] == sb.netns {
			return fmt.Sprintf("pod %s/%s (by sriov-cni)", sb.pod.Namespace, sb.pod.Name), nil
		}
	}
	return fmt.Sprintf("network namespace %s (by sriov-cni)", locks[id]), nil
}
