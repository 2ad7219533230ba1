package dra

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/cniexec"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/sysfs"
)

// hold takes leases of the devices of attachments, so that the devinfo plugin lets nobody
// else have them. The error says which attachment's is somebody else's already: Multus has
// attached the pod before the agent hears of it, or a claim has not given it back.
func (a *Agent) hold(c *claim, which []int, sb *sandbox) (n int, err error) {
	for _, n := range which {
		at := &c.record.Attachments[n]
		if at.Node == nil {
			continue
		}
		err := a.otherClaim(c, at)
		if err == nil && a.Journal != nil && deviceID(at) != "" {
			err = a.holdFor(c, at, sb)
		}
		if err != nil {
			return n, &cniexec.Error{Reason: cniexec.ReasonNode, Err: err}
		}
	}
	return 0, nil
}

func (a *Agent) holdFor(c *claim, at *state.Attachment, sb *sandbox) error {
	of, err := a.leases(c.ref.UID, at)
	if err != nil {
		return err
	}
	of.Netns, of.Pods = sb.netns, []string{string(sb.pod.UID)}
	return a.take(c, []*state.Attachment{at}, of, fmt.Sprintf(": pod %s/%s (%s) cannot have it too: ask for a device once, by a claim or by Multus",
		sb.pod.Namespace, sb.pod.Name, at.IfName))
}

// take takes leases for attachments; advice is what their pod's author is told if somebody else
// has them.
func (a *Agent) take(c *claim, attachments []*state.Attachment, of *journal.Claim, advice string) error {
	of.Namespace, of.Name, of.Time = c.ref.Namespace, c.ref.Name, time.Now().UTC()
	err := a.Journal.Hold(of)
	if held := (*journal.HeldError)(nil); errors.As(err, &held) {
		at := attachments[0]
		for _, of := range attachments {
			if deviceID(of) == journal.DeviceName(cmp.Or(held.Part, held.ID)) {
				at = of
			}
		}
		what := fmt.Sprintf("%s (%s)", at.Device, deviceID(at))
		if strings.HasPrefix(held.ID, groupID("")) {
			what += ", of " + journal.DeviceName(held.ID) + ","
		}
		if by := held.Holder.Claim; by != nil && a.hasGivenUp(types.UID(by.UID)) {
			advice = ", whose DEL was given up: it is free once that is mended, or by cni-dra-driver clear " + by.UID
		}
		return fmt.Errorf("%s is held by %s%s", what, a.nameOf(held.Holder), advice)
	}
	return err
}

// hasGivenUp says whether a DEL of a claim was given up.
func (a *Agent) hasGivenUp(uid types.UID) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.claims[uid]
	return c != nil && c.record.Abandoned != nil
}

// holdBare takes leases of the devices of a claim that it brings no network for, all
// together: its containers get their nodes, and nobody else's may.
func (a *Agent) holdBare(c *claim) error {
	if a.isHeld(c.record) {
		return nil
	}
	var bare []*state.Attachment
	for n := range c.record.Attachments {
		if at := &c.record.Attachments[n]; at.Bare() {
			if err := a.otherClaim(c, at); err != nil {
				return err
			}
			bare = append(bare, at)
		}
	}
	of, err := a.leases(c.ref.UID, bare...)
	if err != nil {
		return err
	}
	of.Pods = []string{string(c.record.Pod.UID)}
	return a.take(c, bare, of, "")
}

// isHeld says whether a claim has leases, for the pod that it belongs to, of what it brings no
// network for.
func (a *Agent) isHeld(record *state.Claim) bool {
	if a.Journal == nil {
		return true
	}
	of, err := a.Journal.Claim(string(record.UID))
	return err == nil && of != nil && slices.Equal(of.Pods, []string{string(record.Pod.UID)}) && a.Journal.Holding(of)
}

func groupID(group string) string { return sysfs.ID("iommu", group) }

// holdGroup takes a lease of the IOMMU group whose node an attachment's containers get: it
// is good for all devices of the group.
func (a *Agent) holdGroup(c *claim, at *state.Attachment, group string) error {
	if a.Journal == nil || group == "" {
		return nil
	}
	of, err := a.Journal.Claim((&journal.Claim{UID: string(c.ref.UID), Part: at.Part()}).Record())
	lease := journal.DeviceLease{ID: groupID(group), Mode: journal.Exclusive}
	if err != nil || of == nil {
		return err
	}
	if !slices.Contains(of.Leases, lease) {
		of.Leases = append(of.Leases, lease)
	} else if a.Journal.Holding(of) {
		return nil
	}
	return a.take(c, []*state.Attachment{at}, of, "")
}

// leases are what one attachment of a claim, or those without an interface, have leases of:
// their devices, and what these are parts of.
func (a *Agent) leases(uid types.UID, attachments ...*state.Attachment) (*journal.Claim, error) {
	of := &journal.Claim{UID: string(uid), Part: attachments[0].Part(), Netns: attachments[0].Netns}
	for _, at := range attachments {
		line, err := a.Inventory.Lineage(deviceID(at))
		if err != nil {
			return nil, err
		}
		for n, device := range line {
			mode := journal.Exclusive
			if n > 0 || at.Node.Shared() {
				mode = journal.Shared
			}
			of.Leases = append(of.Leases, journal.DeviceLease{ID: device.ID, Mode: mode, Object: device.Inode})
		}
	}
	return of, nil
}

// otherClaim is an error if another claim has not given back the device of an attachment:
// its pod may have been deleted by force, or its DEL, though it was given up, be under way.
func (a *Agent) otherClaim(c *claim, at *state.Attachment) error {
	if at.Node.Shared() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, other := range a.claims {
		has := func(held state.Attachment) bool { return held.Owes() && sameDevice(&held, at) }
		if other != c && (slices.ContainsFunc(other.record.Attachments, has) || other.doing == doAgain && slices.ContainsFunc(other.record.Abandoned, has)) {
			return fmt.Errorf("device %s: claim %s has not given it back yet: it is attached once that is done", at.Device, other.name())
		}
	}
	return nil
}

// notOthers is an error if somebody else has got the device of an attachment since its
// sandbox has ended: neither DEL nor restoring may take it from there.
func (a *Agent) notOthers(record *state.Claim, at *state.Attachment) error {
	if a.Journal == nil || deviceID(at) == "" || at.Node.Shared() {
		return nil
	}
	of, err := a.leases(record.UID, at)
	if err == nil {
		of.Pods = []string{identity(at).UID}
		if at.Phase != state.Abandoned {
			of.Pods = append(of.Pods, string(record.Pod.UID))
		}
		err = a.Journal.Free(of)
	}
	if held := (*journal.HeldError)(nil); errors.As(err, &held) {
		err = fmt.Errorf("%s (%s) is held by %s by now, and left alone until it is free", at.Device, deviceID(at), a.nameOf(held.Holder))
	}
	return err
}

// letGo is for an attachment that has nothing any more. Its leases stay while another one in the
// record owes the same: one of a later sandbox, or one whose DEL was given up.
func (a *Agent) letGo(record *state.Claim, at *state.Attachment) error {
	owes := func(of state.Attachment) bool { return of.Owes() && of.Part() == at.Part() && of.Sandbox != at.Sandbox }
	if a.Journal == nil || slices.ContainsFunc(record.Attachments, owes) || slices.ContainsFunc(record.Abandoned, owes) {
		return nil
	}
	of := journal.Claim{UID: string(record.UID), Part: at.Part()}
	return a.Journal.LetGoIf(of.Record(), func() error { return nil })
}

// letGoAll is for attachments that no plugin is run for after all.
func (a *Agent) letGoAll(c *claim, which []int) {
	for _, n := range which {
		if err := a.letGo(c.record, &c.record.Attachments[n]); err != nil {
			a.Log.Warn("the leases of a claim stay until it is unprepared", "claim", c.ref, "error", err)
		}
	}
}

// deviceID is what Multus knows the attachment's device by; "" = it is none of the
// node's own.
func deviceID(at *state.Attachment) string {
	if at.Node == nil {
		return ""
	}
	d := deviceOf(at.Node)
	return cmp.Or(d.VDPA, d.ID())
}

// nameOf names the pod of a network namespace that sriov-cni alone knows, if the agent does.
func (a *Agent) nameOf(h journal.Holder) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, sb := range a.sandboxes {
		if h.Netns != "" && h.Netns == sb.netns {
			return fmt.Sprintf("pod %s/%s (by sriov-cni)", sb.pod.Namespace, sb.pod.Name)
		}
	}
	return h.String()
}
