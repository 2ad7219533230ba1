package dra_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/inventory"
	"devinfo-cni.io/pkg/journal"
)

// Who deletes a pod by force has its device allocated to the next one while the first
// still runs, or its DEL does.
func TestADeviceIsOneClaimsUntilThatHasGivenItBack(t *testing.T) {
	withHardware(t, func(t *testing.T, b *bench) {
		b.attachTo(t, vf2, "vfio-pci")
		first := b.sandbox("s1", "pod")
		b.prepare(onDevice(b.claimOf("b", "u2", "next", want{"x", "net1", ""}), 0, vf2, "vfio-pci"))
		refused := func(sandbox, when string) {
			t.Helper()
			says(t, b.runPod(b.sandbox(sandbox, "next")), vf2, "claim ns/a", "not given it back")
			if n := b.plugins.calls("ADD " + sandbox); n > 0 {
				t.Errorf("%s: %q", when, b.plugins.told)
			}
		}
		refused("s2", "while the first pod runs")
		b.plugins.set(func(command, _, _ string) error {
			if command == "DEL" {
				return errNoMaster
			}
			return nil
		})
		b.endPod(first)
		refused("s3", "while its DEL fails")
		b.plugins.set(nil)
		b.unprepared("u1")
		expectAsCaptured(t, b.kernel)
		next := b.sandbox("s4", "next")
		must(t, b.runPod(next))
		b.endPod(next)
		b.unprepared("u2")
		expectAsCaptured(t, b.kernel)
		b.expectNothing()
	})
}

// abandon has the DEL of claim u1, sandbox s1, given up, which the next one is for then.
func (b *bench) abandon(t *testing.T) {
	t.Helper()
	b.attachTo(t, vf2, "vfio-pci")
	b.plugins.set(func(command, sandbox, _ string) error {
		if command == "DEL" && sandbox == "s1" {
			return errNoMaster
		}
		return nil
	})
	b.endPod(b.sandbox("s1", "pod"))
	b.unprepared("u1")
	if n := b.agent.Census().Phases["Abandoned"]; n != 1 {
		t.Fatalf("got %v", b.agent.Census())
	}
}

// What was given up is the claim's until it has been given back: neither Multus nor another
// claim gets it, though the scheduler may have allocated it just before it was withheld.
func TestADeviceWhoseDELWasGivenUpIsNobodyElses(t *testing.T) {
	withHardware(t, func(t *testing.T, b *bench) {
		b.stop()
		b.options.Journal = journal.Open(filepath.Join(b.dir, "journal"), "boot1")
		b.agent = b.start()
		b.abandon(t)
		held := new(journal.HeldError)
		if err := b.options.Journal.Record(multus("other", "s9", b.netns("s9"), exclusive("pci-0000:03:00.4")), nil); !errors.As(err, &held) {
			t.Errorf("Multus: %v", err)
		}
		b.prepare(onDevice(b.claimOf("b", "u2", "next", want{"x", "net1", ""}), 0, vf2, "vfio-pci"))
		added := b.plugins.calls("ADD")
		err := b.runPod(b.sandbox("s2", "next"))
		says(t, err, vf2, "claim ns/a", "was given up", "cni-dra-driver clear u1")
		if err != nil && strings.Contains(err.Error(), "ask for a device once") {
			t.Errorf("it was asked for once: %v", err)
		}
		if n := b.plugins.calls("ADD"); n != added {
			t.Errorf("%d ADDs", n-added)
		}
		b.endPod(b.sandbox("s2", "next"))
		b.plugins.set(nil)
		time.Sleep(2 * time.Hour) // the hourly DEL
		quiet()
		must(t, b.runPod(b.sandbox("s3", "next")))
		b.endPod(b.sandbox("s3", "next"))
		b.unprepared("u2")
		quiet()
		expectAsCaptured(t, b.kernel)
		b.expectNothing()
	})
}

// A NIC that is on no bus of PCI has no lease, and one claim at a time all the same; the name
// of its interface, which it may have got in a pod, does not matter.
func TestAPortOfAnotherBusIsOneClaimsUntilThatHasGivenItBack(t *testing.T) {
	timeless(t, func(t *testing.T, r *rig, p *plugins) {
		const port = "dev-netdevsim-netdevsim1-p1" // eth0
		n := newNode(t, "netdevsim-switchdev")
		n.rules = "devices: [{ifNames: [eth0, net1], as: exclusive}]"
		r.options.Inventory = n.inventory()
		r.options.Journal = journal.Open(filepath.Join(r.dir, "journal"), "boot1")
		agent := r.start()
		p.set(func(command, sandbox, _ string) error {
			if command == "DEL" {
				return errNoMaster
			}
			return nil
		})
		first, second := ownClaim("u1", port, `"device":[],`+network(`{"type":"x"}`)), ownClaim("u2", port, `"device":[],`+network(`{"type":"x"}`))
		second.Status.ReservedFor[0].Name, second.Status.ReservedFor[0].UID = "next", "uid-next"
		r.prepare(first)
		sb := r.sandbox("s1", "pod")
		must(t, r.runPod(sb))
		r.endPod(sb)
		n.text = bytes.ReplaceAll(n.text, []byte("eth0"), []byte("net1"))
		for name := range inventory.PublishedIn(dra.Survey(agent)) {
			if !dra.Withheld(agent)[name] {
				t.Errorf("%s is offered", name)
			}
		}
		r.prepare(second)
		says(t, r.runPod(r.sandbox("s2", "next")), port, "claim ns/claim-u1", "not given it back")
	})
}
