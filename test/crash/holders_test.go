package crash_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/node"
)

// The VF on vfio-pci, whose device nodes ADD grants, and the PF of both VFs.
const (
	vfioVF = "0000:01:10.6"
	pf     = "0000:01:00.0"
)

// granting is the kind whose CDI spec contains device nodes.
var granting = kind{"nodes", vfioVF, func(a attachment) conf {
	return a.standalone("net").with(conf{"deviceID": vfioVF, "cdi": true})
}}

var pfPart = part{"ADD of the PF by another pod", nil, func(s *stage) []step {
	st := s.add(neighbour)
	st.cmd = s.command("ADD", neighbour, s.conf(neighbour).with(conf{"deviceID": pf}))
	return []step{st}
}}

// Two pods, or a pod and a claim, request the same device, or a VF and its PF. In the end at most one of them has it.
// Each one is stopped while the other runs to its end.
func TestDeviceHasOneHolder(t *testing.T) {
	for _, c := range []struct {
		kind    kind
		stopped part
		actors  []part
	}{
		{delegating, addPart, []part{otherPodPart, claimPart, pfPart}},
		{delegating, claimPart, []part{otherPodPart}},
		{delegating, pfPart, []part{addPart}},
		{granting, addPart, []part{otherPodPart, claimPart}},
		{granting, claimPart, []part{otherPodPart}},
	} {
		t.Run(c.kind.name+", "+c.stopped.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				w.vfioNodes()
				s := newStage(w, c.kind)
				if now := s.owned("/dev/vfio/15"); now != (c.kind.name == granting.name) {
					w.t.Fatalf("the nodes of VFIO are granted: %v", now)
				}
				s.tryAll(c.stopped, c.actors, (*stage).judgeHolders).report(w.t)
			})
		})
	}
}

// vfioNodes mounts a /dev with the device nodes of VFIO and of vfioVF's group. Any devices will do.
func (w *world) vfioNodes() {
	w.t.Helper()
	dev := w.t.TempDir()
	w.fine(unix.Mount("tmpfs", dev, "tmpfs", 0, "mode=0755"), os.Mkdir(dev+"/vfio", 0o755))
	for node, is := range map[string]string{"null": "null", "zero": "zero", "urandom": "urandom", "vfio/vfio": "null", "vfio/15": "null"} {
		path := filepath.Join(dev, node)
		w.fine(os.WriteFile(path, nil, 0o644), unix.Mount("/dev/"+is, path, "", unix.MS_BIND, ""))
	}
	w.fine(unix.Mount(dev, "/dev", "", unix.MS_BIND|unix.MS_REC, ""))
	w.t.Cleanup(func() { w.fine(unix.Unmount("/dev", unix.MNT_DETACH), unix.Unmount(dev, unix.MNT_DETACH)) })
}

// owned reports whether a file of our attachment contains the text.
func (s *stage) owned(text string) bool {
	for _, what := range s.owns[ours.container] {
		if strings.Contains(what.Text, text) {
			return true
		}
	}
	return false
}

// judgeHolders returns a problem if two acts have got the device, or if one that has not got it has left anything but the
// record that its ADD was refused.
func (s *stage) judgeHolders(acts []act) (problems []string) {
	s.t.Helper()
	now := view.Take(s.t)
	var holders []string
	for _, a := range acts {
		there, _ := s.have(now, a.of.container)
		says := refusal(now, a.of.container)
		switch {
		case a.Exit == 0:
			holders = append(holders, strings.TrimSpace(a.verb+" "+a.of.container))
		case a.refused() && len(says) == 0:
			problems = append(problems, "the journal does not say that ADD was refused")
		case len(there) > len(says) || !a.refused() && len(says) > 0:
			problems = append(problems, "left of an ADD that failed: "+strings.Join(there, ", "))
		}
	}
	if len(holders) > 1 {
		slices.Sort(holders)
		problems = append(problems, "all have the device: "+strings.Join(holders, ", "))
	}
	return append(problems, s.refusals(acts)...)
}

// The claimant takes the device for a ResourceClaim, as the DRA driver does. It is the test binary under another
// name. The three functions below are its commands.
const claimant = "claimant"

// hold takes a lease of the device and of its parent for the claim. It fails if another holder has one.
func hold(device string) error {
	j, err := node.Journal(stateDir)
	if err != nil {
		return err
	}
	sys, err := sysfs.Open(node.Sys)
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

var claimRecord = (&journal.Claim{UID: claimUID, Part: "net1"}).FileName()

// release ends the claim's leases.
func release(string) error {
	j, err := node.Journal(stateDir)
	if err != nil {
		return err
	}
	return j.ReleaseIf(claimRecord, func() error { return nil })
}

// held reports whether the claim has a lease of the device.
func held(device string) (bool, error) {
	j, err := node.Journal(stateDir)
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
