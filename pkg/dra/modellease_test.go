package dra_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/sysfs"
)

// IDs of a PF and of one of its VFs in the journal.
const modelPF, modelVF = "pci-0000:03:00.0", "pci-0000:03:00.2"

// multusPods simulates pods that Multus attaches to the PF, or to a VF that claims may also have.
func (m *model) multusPods() {
	for n := 0; ; n++ {
		time.Sleep(m.randomUpTo(3 * time.Minute))
		if m.isOver() {
			return
		}
		leases := [][]journal.DeviceLease{{exclusiveLease(modelPF)}, {exclusiveLease(modelVF), {ID: modelPF, Mode: journal.Shared}}, {{ID: modelPF, Mode: journal.Shared}}}[m.randomUpTo(3)]
		name := fmt.Sprint("multus", n)
		sb := m.sandbox(name, name)
		e := multusEntry(name, name, netnsOf(sb), leases...)
		switch err := m.options.Devices.Journal.Record(e, nil); {
		case err == nil:
			e.Unlock()
			m.expectFree(leases[0])
			time.Sleep(m.randomUpTo(30 * time.Second))
			m.expectFree(leases[0])
			noError(m.t, m.options.Devices.Journal.Forget(e))
		case !errors.As(err, new(*journal.HeldError)) || leases[0].Mode == journal.Shared:
			m.t.Errorf("lease of %s for Multus: %v", leases[0].ID, err)
		}
		m.removeNetns(sb)
	}
}

// expectFree checks that no container uses a device that Multus has leased.
func (m *model) expectFree(l journal.DeviceLease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for sandbox, device := range m.holding {
		if l.Mode == journal.Exclusive && (l.ID == modelPF || l.ID == modelVF && device == vf0) {
			m.t.Errorf("Multus has %s, and sandbox %s %s", l.ID, sandbox, device)
		}
	}
}

// expectLeases checks, while no agent runs, that claims have leases of all devices that they must restore, and
// no other leases.
func (m *model) expectLeases() {
	entries := m.files("state")
	for _, name := range entries {
		uid, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		record := m.record(uid)
		uid = string(record.UID)
		for _, at := range record.Attachments {
			if at.NodeDevice == nil || !at.Owes() {
				continue
			}
			ids := []string{sysfs.ID("auxiliary", at.NodeDevice.Aux), modelPF}
			switch {
			case slices.Contains(modelPorts, at.Device):
				ids = []string{modelNIC}
			case at.NodeDevice.PCI != "":
				ids[0] = sysfs.ID("pci", at.NodeDevice.PCI)
			}
			for _, id := range ids {
				holders, err := m.options.Devices.Journal.Holders(journal.OfDevice, id)
				must(m.t, err)
				if !slices.ContainsFunc(holders, func(h journal.Holder) bool { return h.Claim != nil && h.Claim.UID == uid }) {
					m.t.Errorf("claim %s owes %s of %s, and has no lease of %s", uid, at.Phase, at.Device, id)
				}
			}
		}
	}
	claims, err := m.options.Devices.Journal.Claims()
	must(m.t, err)
	for _, c := range claims {
		uid, _, _ := strings.Cut(c, "=")
		if !slices.ContainsFunc(entries, func(name string) bool { return name == uid+".json" || strings.HasPrefix(name, uid+"=") }) {
			m.t.Errorf("lease of claim %s, which is not on record", c)
		}
	}
}

// failDELsOf makes all DELs of some sandboxes fail, so that they are given up. The sandbox must be the last one
// with the device, because a later sandbox of the same claim would get the device unrestored.
func (m *model) failDELsOf(sandbox string) {
	if yes := m.oneIn(3); yes {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.failingDELs[sandbox] = true
	}
}

func (m *model) failsDELs(sandbox string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults && m.failingDELs[sandbox]
}

// setDevice records which device the containers of a sandbox use; "" = none.
func (m *model) setDevice(sandbox, claim, device string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if device == "" {
		delete(m.holding, sandbox)
		return
	}
	for other, its := range m.holding {
		if sameHardware(its, device) && device != pf {
			m.t.Errorf("sandboxes %s and %s run with %s", other, sandbox, device)
		}
	}
	m.holding[sandbox] = device
	if at := m.record(string(claim)).Attachments[0]; at.Device != device || at.Phase != state.Added {
		m.t.Errorf("sandbox %s runs with %s (%s), want %s", sandbox, at.Device, at.Phase, device)
	}
}
