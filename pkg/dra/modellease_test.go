package dra_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
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

// anyPort is a device of [modelDevices]: a port of the second NIC of the model, whose two ports are on one function.
const anyPort = "any port"

// modelPorts are the devices of these ports, with the interfaces p1 and p2.
var modelPorts = []string{"pci-0000-3b-00-0", "devx-pci--0000-3a3b-3a00-2e0--p1"}

const modelNIC = "pci-0000:3b:00.0" // its ID in the journal

// withPorts adds the NIC to a capture.
func withPorts(text []byte) []byte {
	const list = "-- netlink/ip-link.json --\n[\n"
	_, nic, _ := bytes.Cut(capturetest.Ports("mlx4_core", len(modelPorts)), []byte("\n"))
	files, links, _ := bytes.Cut(nic, []byte(list))
	links = bytes.TrimSuffix(links, []byte("\n]\n"))
	text = bytes.Replace(text, []byte(list), slices.Concat([]byte(list), links, []byte(",\n")), 1)
	return slices.Concat(text, []byte("\n"), files)
}

// reroute makes the first port an uplink now and then, so that only the second one is offered. In the end it is none:
// otherwise a pod that has got the port would wait for its deletion.
func (m *model) reroute(host *node) {
	plain := host.text
	for n := 0; !m.isOver(); n++ {
		time.Sleep(m.randomUpTo(2 * time.Minute))
		host.mu.Lock()
		if host.text = plain; n%2 == 0 && !m.isOver() {
			host.text = slices.Concat(plain, []byte("-- netlink/uplinks.json --\n[\"p1\"]\n"))
		}
		host.mu.Unlock()
	}
}

// schedule allocates a port like the scheduler, which may know an old slice.
func (m *model) schedule() string {
	for ; ; time.Sleep(m.randomUpTo(20 * time.Second)) {
		if agent := m.agentNow(); agent != nil && !m.oneIn(2) {
			m.slices <- struct{}{}
			list := dra.Survey(agent)
			<-m.slices
			m.mu.Lock()
			m.offered = inventory.PublishedIn(list)
			m.mu.Unlock()
		}
		if port := m.allocate(); port != "" {
			return port
		}
	}
}

func (m *model) allocate() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.offered)) {
		if slices.Contains(modelPorts, name) && m.offered[name].Taints == nil && !m.allocated[name] {
			m.allocated[name] = true
			return name
		}
	}
	return ""
}

func (m *model) deallocate(device string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.allocated, device)
}

// sameHardware reports whether two devices are one, or ports of one function.
func sameHardware(a, b string) bool {
	return a == b || slices.Contains(modelPorts, a) && slices.Contains(modelPorts, b)
}

// prepares tries for a while to prepare a claim. The driver may no longer offer its port.
func (m *model) prepares(try func(context.Context, *dra.Agent) error) bool {
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(3 * time.Second) {
		if agent := m.agentNow(); agent != nil && try(context.Background(), agent) == nil {
			return true
		}
	}
	return false
}
