package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/difftest"
)

func claimOf(pod string, leases ...journal.DeviceLease) *journal.Claim {
	return &journal.Claim{UID: "7d2f", Part: "net1", Namespace: "shop", Name: "vf", Pods: []string{pod}, Leases: leases}
}

func TestPodSharesDeviceWithItsClaim(t *testing.T) {
	j, dir := open(t)
	vf, pf := has("pci-vf", journal.Exclusive)[0], has("pci-pf", journal.Shared)[0]
	c := claimOf("pod", vf, pf)
	must(t, j.Hold(c), j.Hold(c))
	got, err := j.Claim(c.FileName())
	must(t, err)
	difftest.Equal(t, got, c)
	wants := func(pod string) *journal.Entry {
		return &journal.Entry{Key: key1, Pod: pod, Leases: []journal.DeviceLease{vf}}
	}
	difftest.Equal(t, refuse(t, j, wants("other")).Error(), "device vf: is held by claim shop/vf")
	e := record(t, j, wants("pod")) // for the pod's own network
	other := claimOf("other", vf)
	other.UID = "8e3a"
	for _, err := range []error{j.Free(other), j.Hold(other)} {
		difftest.As[*journal.HeldError](t, err)
	}
	c.Leases = c.Leases[1:] // the next Hold releases the VF
	must(t, j.Forget(e), j.Hold(c))
	difftest.Holds(t, dir+"/leases/device", "pci-pf")
	must(t, j.Hold(other), release(j, c.FileName()), release(j, c.FileName()), release(j, other.FileName()))
	expectFiles(t, dir)
}

// A damaged record still has its name, and the driver's next Hold repairs it. One that fails restores what was there.
func TestDamagedClaimStaysUntilItIsHeldAgainOrReleased(t *testing.T) {
	j, dir := open(t)
	c, path := claimOf("pod", has("pci-vf", journal.Exclusive)...), dir+"/claims/7d2f=net1"
	must(t, j.Hold(c))
	whole := difftest.Read(t, path)
	for _, text := range []string{whole, strings.TrimSuffix(whole, "}\n"), ""} {
		must(t, os.WriteFile(path, []byte(text), 0o600))
		swept(t, j)
		difftest.Contains(t, refuse(t, j, &journal.Entry{Key: key1, Pod: "other", Leases: c.Leases}).Error(), map[bool]string{true: "claim shop/vf", false: "claim 7d2f"}[text == whole])
		must(t, os.WriteFile(dir+"/leases/device/pci-bad", nil, 0o600))
		before := files(t, dir)
		difftest.Says(t, j.Hold(claimOf("pod", c.Leases[0], has("pci-more", journal.Exclusive)[0], has("pci-bad", journal.Exclusive)[0])), "pci-bad")
		expectFiles(t, dir, before...)
		difftest.Equal(t, difftest.Read(t, path), text)
		must(t, os.Remove(dir+"/leases/device/pci-bad"))
		must(t, j.Hold(c))
	}
	must(t, os.WriteFile(path, nil, 0o600), release(j, "7d2f=net1"))
	swept(t, j, "leases/device/pci-vf/7d2f=net1")
	expectFiles(t, dir)
}

func TestClaimOfNewerBuildStays(t *testing.T) {
	j, dir := open(t)
	must(t, j.Hold(claimOf("pod", has("pci-vf", journal.Exclusive)...)))
	for _, text := range []string{`{"format": 99}`, `{"leases": {}, "format": 99}`, `{"time": "soon", "format": 99}`} {
		must(t, os.WriteFile(dir+"/claims/7d2f=net1", []byte(text), 0o600))
		refuse(t, j, &journal.Entry{Key: key1, Pod: "pod", Leases: has("pci-vf", journal.Exclusive)})
		difftest.As[*journal.FormatError](t, release(j, "7d2f=net1"))
	}
}

// A killed ADD may have taken none of the leases that its entry names.
func TestDevicesReturnsOnlyTakenLeases(t *testing.T) {
	j, dir := open(t)
	leases := []journal.DeviceLease{{ID: "pci-vf", Mode: journal.Exclusive}, {ID: "pci-pf", Mode: journal.Shared}}
	e := record(t, j, &journal.Entry{Key: key1, Pod: "a", File: "f", Leases: leases})
	difftest.Equal(t, j.Devices(e), leases)
	must(t, os.Remove(dir+"/leases/device/pci-pf/~net-a@c0ffee@net1"))
	difftest.Equal(t, j.Devices(e), leases[:1])
	for _, c := range []struct {
		id              string
		recorded, asked uint64
		want            bool
	}{
		{"pci-vf", 7, 7, true}, {"pci-vf", 7, 8, false}, {"pci-vf", 0, 8, true}, {"pci-vf", 7, 0, true}, {"pci-pf", 0, 0, false}, {"pci-none", 0, 0, false},
	} {
		leases[0].Object = c.recorded
		difftest.Same(t, fmt.Sprintf("%+v", c), j.Has(record(t, j, &journal.Entry{Key: key1, Pod: "a", Leases: leases}), c.id, c.asked), c.want)
	}
}

func TestClaimStaysUnlessReleaseIsAllowed(t *testing.T) {
	j, dir := open(t)
	c := &journal.Claim{UID: "u", Leases: has("pci-vf", journal.Exclusive)}
	must(t, j.Hold(c))
	before, kept := files(t, dir), errors.New("the driver has it")
	difftest.Is(t, j.ReleaseIf("u", func() error { return kept }), kept)
	expectFiles(t, dir, before...)
	for _, none := range []string{"none", "../u", ".u"} {
		got, err := j.Claim(none)
		must(t, err, j.ReleaseIf(none, func() error { return kept }))
		difftest.Same(t, none, got, (*journal.Claim)(nil))
	}
	must(t, j.ReleaseIf("u", func() error { return nil }))
	expectFiles(t, dir)
	for _, of := range []*journal.Claim{c, {UID: "u=net1"}} {
		difftest.Equal(t, of.EndCommand(), "devinfoctl gc --claim u --yes")
	}
}

// A device plugin has overwritten the file "replaced", so the driver must keep it.
func TestClaimFilesAreRemovedWithItsLeases(t *testing.T) {
	j, dir := open(t)
	at := t.TempDir()
	path := func(name string) string { return filepath.Join(at, name) }
	c := &journal.Claim{UID: "u", Leases: has("pci-vf", journal.Exclusive), Files: map[string]string{path("kept"): "ours", path("former"): "ours", path("replaced"): "ours", path("link"): "ours", path(strings.Repeat("x", 256)): "ours"}}
	must(t, j.Hold(c))
	for name, text := range map[string]string{"kept": "ours", "former": "ours", "replaced": "of a plugin", "other": "ours"} {
		must(t, os.WriteFile(path(name), []byte(text), 0o600))
	}
	must(t, os.WriteFile(path(".missing.devinfo"), []byte("half"), 0o600), os.Symlink("kept", path("link"))) // of a killed writer, and of another program
	c.Files = map[string]string{path("kept"): "ours", path("replaced"): "ours", path("missing"): "ours"}
	must(t, j.Hold(c))
	difftest.Same(t, "after Hold with fewer files", difftest.Names(t, at), []string{".missing.devinfo", "kept", "link", "other", "replaced"})
	must(t, release(j, "u"))
	difftest.Same(t, "after the release", difftest.Names(t, at), []string{"link", "other", "replaced"})
	expectFiles(t, dir)
}

// The sweep may have read the record of the previous boot just before the driver replaces it.
func TestSweepKeepsClaimThatIsHeldAgain(t *testing.T) {
	j, dir := open(t)
	vf := has("pci-vf", journal.Exclusive)
	for range 100 {
		must(t, journal.Open(dir, "older").Hold(claimOf("pod", vf...)))
		done := make(chan error)
		go func() { done <- j.Sweep(func(string) {}) }()
		must(t, j.Hold(claimOf("pod", vf...)), <-done)
		holders, err := j.Holders(journal.OfDevice, "pci-vf")
		must(t, err, release(j, "7d2f=net1"))
		difftest.Same(t, "holders", len(holders), 1)
	}
	expectFiles(t, dir)
}

// The claim has two VFs of one PF, so it finds the stale lease of the PF twice. The lease is stale because its
// network namespace no longer exists.
func TestHoldReplacesStaleLeaseListedTwice(t *testing.T) {
	j, dir := open(t)
	j.NetnsGone = func(string) (bool, error) { return true, nil }
	record(t, j, &journal.Entry{Key: key1, Pod: "other", Netns: "/run/netns/gone", Leases: has("pci-pf", journal.Exclusive)})
	pf := has("pci-pf", journal.Shared)[0]
	c := claimOf("pod", has("pci-vf1", journal.Exclusive)[0], pf, has("pci-vf2", journal.Exclusive)[0], pf)
	for range 2 {
		must(t, j.Hold(c))
		difftest.Same(t, "it holds all its leases", j.Holding(c), true)
		must(t, os.Remove(dir+"/leases/device/pci-vf2/7d2f=net1"))
		difftest.Same(t, "without one of them", j.Holding(c), false)
	}
}
