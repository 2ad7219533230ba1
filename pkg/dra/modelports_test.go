package dra_test

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
)

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

// reroute makes the first port an uplink now and then, so that only the second one is offered.
func (m *model) reroute(host *node) {
	plain := host.text
	for n := 0; !m.isOver(); n++ {
		time.Sleep(m.randomUpTo(2 * time.Minute))
		host.mu.Lock()
		if host.text = plain; n%2 == 0 {
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
