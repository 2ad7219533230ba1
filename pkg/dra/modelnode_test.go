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

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// plugin returns the agent's Kubelet. The model simulates kubeletplugin.
func (m *model) plugin(a *dra.Agent, fatal func(error)) *dra.Kubelet {
	return dra.Unstarted(a, dra.KubeletOptions{Node: "node1", Metadata: true, PluginDir: m.Dir, Client: m.client, Fatal: fatal})
}

// prepare prepares a claim like the kubelet, which does not prepare a prepared claim again. kubeletplugin
// writes the metadata of each request after Prepare, and only logs a failure.
func (m *model) prepare(ctx context.Context, a *dra.Agent, claim *resourceapi.ResourceClaim) error {
	library := func(ctx context.Context, _ any) (any, error) {
		prepared := new(drapb.NodePrepareResourceResponse)
		devices, err := a.Prepare(ctx, claim, 0)
		if err != nil {
			prepared.Error = err.Error()
		}
		fails := m.oneIn(6)
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, d := range devices {
			ids := d.CDIDeviceIDs
			if !fails {
				m.described[string(claim.UID)] = true
				ids = append(ids, dratest.Driver+"/metadata="+string(claim.UID))
			}
			prepared.Devices = append(prepared.Devices, &drapb.Device{RequestNames: d.Requests, CdiDeviceIds: ids})
		}
		return &drapb.NodePrepareResourcesResponse{Claims: map[string]*drapb.NodePrepareResourceResponse{string(claim.UID): prepared}}, nil
	}
	answer, err := m.plugin(a, nil).Intercept(ctx, new(drapb.NodePrepareResourcesRequest), library)
	if err != nil {
		return err
	}
	if text := answer.(*drapb.NodePrepareResourcesResponse).Claims[string(claim.UID)].Error; text != "" {
		return errors.New(text)
	}
	return nil
}

// UpdateRequestMetadata simulates kubeletplugin, which can update a file only after Prepare has written it.
func (m *model) UpdateRequestMetadata(_ context.Context, namespace, name string, uid types.UID, request string, _ []kubeletplugin.Device) error {
	m.mu.Lock()
	described := m.described[string(uid)]
	m.mu.Unlock()
	switch {
	case !described:
		return fmt.Errorf("request %s not found in prepared claim %s/%s", request, namespace, name)
	case m.oneIn(8):
		return errors.New("no space left on device")
	}
	return nil
}

// kubeletRestarts registers the agent's plugin again, sometimes after it has replaced the Node object. The
// agent must end the process only if the object was replaced.
func (m *model) kubeletRestarts() {
	a, fatal := m.agentNow(), make(chan error, 2)
	k := m.plugin(a, func(err error) { fatal <- err })
	dratest.NoError(m.T, k.Register(context.Background()))
	again := m.oneIn(2)
	if again {
		m.nodes++
		dratest.NoError(m.T, m.client.CoreV1().Nodes().Delete(context.Background(), "node1", metav1.DeleteOptions{}))
		dratest.NoError(m.T, m.client.Tracker().Add(nodeOf(m.nodes)))
	}
	dratest.NoError(m.T, k.Register(context.Background()))
	if (len(fatal) == 1) != again || again && !strings.Contains((<-fatal).Error(), "node1") {
		m.T.Errorf("the node was registered again: %v; %d errors", again, len(fatal))
	}
}

func nodeOf(n int) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: types.UID(fmt.Sprint("node-", n))}}
}

// hidePF moves the PF's interface away for a while, as a driver reset does.
func (m *model) hidePF() {
	const address, away = "0000:03:00.0", "/var/run/netns/of-somebody"
	for !m.isOver() {
		time.Sleep(m.randomUpTo(3 * time.Minute))
		dratest.NoError(m.T, m.Kernel.Move(address, "", away, "net5"))
		time.Sleep(m.randomUpTo(20 * time.Second))
		dratest.NoError(m.T, m.Kernel.Move(address, away, "", "p0"))
	}
}

func (m *model) isOver() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.over
}

// IDs of a PF and of one of its VFs in the journal.
const modelPF, modelVF = "pci-0000:03:00.0", "pci-0000:03:00.2"

// multusPods simulates pods that Multus attaches to the PF, or to a VF that claims may also have.
func (m *model) multusPods() {
	for n := 0; ; n++ {
		time.Sleep(m.randomUpTo(3 * time.Minute))
		if m.isOver() {
			return
		}
		leases := [][]journal.DeviceLease{{dratest.ExclusiveLease(modelPF)}, {dratest.ExclusiveLease(modelVF), {ID: modelPF, Mode: journal.Shared}}, {{ID: modelPF, Mode: journal.Shared}}}[m.randomUpTo(3)]
		name := fmt.Sprint("multus", n)
		sb := m.Sandbox(name, name)
		e := dratest.MultusEntry(sb, leases...)
		switch err := m.Options.Devices.Journal.Put(e, nil); {
		case err == nil:
			e.Unlock()
			m.expectFree(leases[0])
			time.Sleep(m.randomUpTo(30 * time.Second))
			m.expectFree(leases[0])
			dratest.NoError(m.T, m.Options.Devices.Journal.Forget(e))
		case !errors.As(err, new(*journal.HeldError)) || leases[0].Mode == journal.Shared:
			m.T.Errorf("lease of %s for Multus: %v", leases[0].ID, err)
		}
		m.RemoveNetns(sb)
	}
}

// expectFree checks that no container uses a device that Multus has leased.
func (m *model) expectFree(l journal.DeviceLease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for sandbox, device := range m.holding {
		if l.Mode == journal.Exclusive && (l.ID == modelPF || l.ID == modelVF && device == dratest.VF0) {
			m.T.Errorf("Multus has %s, and sandbox %s %s", l.ID, sandbox, device)
		}
	}
}

// expectLeases checks, while no agent runs, that claims have leases of all devices that they must restore, and
// no other leases.
func (m *model) expectLeases() {
	entries := m.Files("state")
	for _, name := range entries {
		uid, ok := strings.CutSuffix(name, ".json")
		if !ok {
			continue
		}
		record := m.Record(uid)
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
				holders, err := m.Options.Devices.Journal.Holders(journal.OfDevice, id)
				difftest.Must(m.T, err)
				if !slices.ContainsFunc(holders, func(h journal.Holder) bool { return h.Claim != nil && h.Claim.UID == uid }) {
					m.T.Errorf("claim %s owes %s of %s, and has no lease of %s", uid, at.Phase, at.Device, id)
				}
			}
		}
	}
	claims, err := m.Options.Devices.Journal.Claims()
	difftest.Must(m.T, err)
	for _, c := range claims {
		uid, _, _ := strings.Cut(c, "=")
		if !slices.ContainsFunc(entries, func(name string) bool { return name == uid+".json" || strings.HasPrefix(name, uid+"=") }) {
			m.T.Errorf("lease of claim %s, which is not on record", c)
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
		if sameHardware(its, device) && device != dratest.PF {
			m.T.Errorf("sandboxes %s and %s run with %s", other, sandbox, device)
		}
	}
	m.holding[sandbox] = device
	if at := m.Record(string(claim)).Attachments[0]; at.Device != device || at.Phase != state.Added {
		m.T.Errorf("sandbox %s runs with %s (%s), want %s", sandbox, at.Device, at.Phase, device)
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
func (m *model) reroute(host *dratest.Node) {
	plain := host.Text
	for n := 0; !m.isOver(); n++ {
		time.Sleep(m.randomUpTo(2 * time.Minute))
		host.Lock()
		if host.Text = plain; n%2 == 0 && !m.isOver() {
			host.Text = slices.Concat(plain, []byte("-- netlink/uplinks.json --\n[\"p1\"]\n"))
		}
		host.Unlock()
	}
}

// schedule allocates a port like the scheduler, which may know an old slice.
func (m *model) schedule() string {
	for ; ; time.Sleep(m.randomUpTo(20 * time.Second)) {
		if agent := m.agentNow(); agent != nil && !m.oneIn(2) {
			m.slices <- struct{}{}
			offered := dratest.Survey(agent)
			<-m.slices
			m.mu.Lock()
			m.offered = offered
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
