package crash_test

import (
	"slices"

	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/sysfs"
)

// The claimant is a program that takes the device for a ResourceClaim, as the DRA driver
// does: the test binary under its name. What it does, and how a test sees and ends it, are
// the three functions below; nothing else here knows of claims.
const (
	claimant     = "claimant"
	claimantPath = cniDir + "/" + claimant
)

// hold takes a device for the claim, with what it is a part of. The error is that another
// has it.
func hold(device string) error {
	j, err := openJournal()
	if err != nil {
		return err
	}
	sys, err := sysfs.Open("/run/sys")
	if err != nil {
		return err
	}
	line, err := sys.Lineage(device)
	if err != nil {
		return err
	}
	claim := &journal.Claim{UID: claimUID, Part: "net1", Namespace: "default", Name: "device", Pods: []string{"claimant"}, Netns: otherNetns}
	mode := journal.Exclusive
	for _, d := range line {
		claim.Leases = append(claim.Leases, journal.DeviceLease{ID: d.ID, Mode: mode, Object: d.Inode})
		mode = journal.Shared
	}
	return j.Hold(claim)
}

const claimUID = "1eaf00de"

var claimRecord = (&journal.Claim{UID: claimUID, Part: "net1"}).Record()

// letGo gives it back, if the claim has it.
func letGo(string) error {
	j, err := openJournal()
	if err != nil {
		return err
	}
	return j.LetGoIf(claimRecord, func() error { return nil })
}

// held says whether the claim has it.
func held(device string) (bool, error) {
	j, err := openJournal()
	if err != nil {
		return false, err
	}
	c, err := j.Claim(claimRecord)
	if c == nil || err != nil {
		return false, err
	}
	holders, err := j.Holders(journal.OfDevice, sysfs.ID("pci", device))
	return slices.ContainsFunc(holders, func(h journal.Holder) bool { return h.Claim != nil && h.Claim.UID == claimUID }), err
}
