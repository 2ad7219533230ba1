package claim

import (
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
)

// sameDevice reports whether two attachments have one device that at least one of them has to itself: as the
// scheduler has allocated it, or as the device-info files say. Pods on one macvlan master share its PCI
// address, and each of them may be detached.
func sameDevice(a, b *state.Attachment) bool {
	if a.Exclusive() && b.Exclusive() && a.Pool == b.Pool && a.Device == b.Device {
		return true
	}
	one, other := a.PCI(), b.PCI()
	return one != "" && one == other && (a.Exclusive() || b.Exclusive())
}

// otherClaim returns an error if another claim has not given back the device of an attachment: its pod was deleted
// by force, or its DEL was given up and runs again.
func (t *table) otherClaim(c *claim, at *state.Attachment) error {
	if at.Node.Shared() {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, other := range t.claims {
		has := func(held state.Attachment) bool { return held.Owes() && sameDevice(&held, at) }
		if other != c && (slices.ContainsFunc(other.record.Attachments, has) || other.doing == doAgain && slices.ContainsFunc(other.record.Abandoned, has)) {
			return fmt.Errorf("device %s: claim %s has not given it back yet: it is attached once that is done", at.Device, other.name())
		}
	}
	return nil
}

// oldNote returns the note of a device whose restore was given up, in this boot; nil = none was. The
// scheduler may have allocated the device before it was withheld.
func (t *table) oldNote(at *state.Attachment) devices.Note {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.claims {
		for n := range c.record.Abandoned {
			if old := &c.record.Abandoned[n]; old.Note != nil && old.BootID == t.bootID && sameDevice(old, at) {
				return old.Note
			}
		}
	}
	return nil
}

// isTaken reports whether another attachment has the device of an abandoned one, is about to get it, or runs DEL
// for it: another DEL would take the device away. The mutex must be held.
func (t *table) isTaken(c *claim, at *state.Attachment) bool {
	for _, other := range t.claims {
		busy := other.doing == doAdd || other.doing == doOpen
		has := func(held state.Attachment) bool { return sameDevice(&held, at) && (held.Owes() || busy) }
		again := other != c && other.doing == doAgain
		if slices.ContainsFunc(other.record.Attachments, has) || again && slices.ContainsFunc(other.record.Abandoned, has) {
			return true
		}
	}
	return false
}
