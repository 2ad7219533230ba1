package dra_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/host/settings"
)

// pod simulates pods, one after another.
func (m *model) pod(n int) {
	for life := 0; ; life++ {
		name := fmt.Sprintf("pod%d-%d", n, life)
		m.life(n, name)
		m.mu.Lock()
		m.lives++
		m.mu.Unlock()
		if m.isOver() {
			return
		}
	}
}

// life simulates a pod. Its claim may get another device for the pod's next sandbox. The pod may be deleted by
// force, so that the next pod gets the same device while this one still runs.
func (m *model) life(n int, name string) {
	own := name
	unprepare := func() {
		m.call("Unprepare", func(ctx context.Context, a *dra.Agent) error { return a.Unprepare(ctx, own) })
		m.store(own, nil)
	}
	shares := modelDevices()[n][0].name == ""
	if shares && m.oneIn(4) {
		m.clash(name)
		return
	}
	for turn, d := range modelDevices()[n][:1+m.randomUpTo(time.Duration(len(modelDevices()[n])))] {
		claim := m.ClaimOf("own", own, name, dratest.Net("x", "net1", m.behave()), dratest.Net("y", "net2", m.behave()))
		switch {
		case d.name == dratest.PF:
			claim.Status.Allocation.Devices.Results[0].Device = dratest.PF
			raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
			*raw = append([]byte(`{"device":[{"plugin":"fake","key":"master"}],`), (*raw)[1:]...)
		case d.name == anyPort:
			d.name = m.schedule()
			defer m.deallocate(d.name)
			result := &claim.Status.Allocation.Devices.Results[0]
			result.Device, result.ShareID = d.name, nil
			raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
			*raw = append([]byte(`{"device":[],`), (*raw)[1:]...)
		case d.name != "":
			m.untilOffered(d.name)
			dratest.OnDevice(claim, 0, d.name, d.driver)
		}
		m.store(own, claim)
		prepare := func(ctx context.Context, a *dra.Agent) error { return m.prepare(ctx, a, claim) }
		if slices.Contains(modelPorts, d.name) {
			if !m.prepares(prepare) {
				break // the pod is deleted
			}
		} else {
			m.call("Prepare", prepare)
		}
		if shares {
			m.share(name)
		}
		sb := m.runSandboxes(name, fmt.Sprint(name, "-", turn))
		if d.name != "" && m.oneIn(4) {
			m.store(own, nil)
			m.ending.Go(func() {
				m.runContainers(sb, claim, d.name, shares)
				m.failDELsOf(sb.Id)
				m.endSandbox(sb)
				unprepare()
			})
			return
		}
		m.runContainers(sb, claim, d.name, shares)
		m.failDELsOf(sb.Id)
		m.endSandbox(sb)
		if shares {
			m.unshare(name)
		}
	}
	unprepare()
}

// clash simulates a pod whose own claim and the shared claim have one interface name. It never gets both claims, until
// its author deletes it.
func (m *model) clash(name string) {
	claim := m.ClaimOf("own", name, name, dratest.Net("x", "net9", ""), dratest.Net("y", "net2", ""))
	m.store(name, claim)
	m.call("Prepare", func(ctx context.Context, a *dra.Agent) error { return m.prepare(ctx, a, claim) })
	if m.reserve(name) {
		m.tryClash(name)
		m.unshare(name)
	}
	m.call("Unprepare", func(ctx context.Context, a *dra.Agent) error { return a.Unprepare(ctx, name) })
	m.store(name, nil)
}

func (m *model) tryClash(name string) {
	for n := range 3 {
		sb := m.newSandbox(fmt.Sprint(name, "-", n), name)
		err := m.nri(func(ctx context.Context, a *dra.Agent) error { return a.RunPodSandbox(ctx, sb) })
		time.Sleep(m.randomUpTo(time.Minute))
		if m.CreateContainer(sb, "shared_x") == nil {
			m.T.Errorf("%s runs with two networks for net9; its sandbox: %v", name, err)
		}
		m.endSandbox(sb)
	}
}

// newSandbox returns a sandbox that the runtime lists.
func (m *model) newSandbox(id, pod string) *api.PodSandbox {
	sb := m.Sandbox(id, pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[sb.Id] = sb
	return sb
}

type modelDevice struct{ name, driver string }

// modelDevices returns the devices that each pod's claim gets, one after another; "" = none.
func modelDevices() [modelPods][]modelDevice {
	return [modelPods][]modelDevice{{{"", ""}}, {{"", ""}}, {{dratest.VF0, ""}, {dratest.SF4, ""}}, {{dratest.VF2, "vfio-pci"}}, {{dratest.PF, ""}}, {{"", ""}}, {{anyPort, ""}}, {{anyPort, ""}}}
}

// modelNames returns the names of devices in slices, by device ID.
func modelNames() map[string]string {
	return map[string]string{"0000:03:00.2": dratest.VF0, "0000:03:00.4": dratest.VF2, "mlx5_core.sf.4": dratest.SF4}
}

// isGivenUp reports whether a device is undeleted on record.
func (m *model) isGivenUp(device string) bool {
	return slices.ContainsFunc(m.Files("state"), func(name string) bool {
		path := filepath.Join(m.Options.StateDir, name)
		data, _ := os.ReadFile(path) // the file may have been removed
		c, err := state.Parse(path, data)
		return err == nil && slices.ContainsFunc(c.Undeleted, func(at state.Attachment) bool { return at.Device == device })
	})
}

// untilOffered waits until a device is not undeleted any more, as the scheduler does.
func (m *model) untilOffered(device string) {
	for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(time.Minute) {
		if !m.isGivenUp(device) {
			return
		}
	}
	m.T.Errorf("%s stays given up", device)
}

// behave returns how long the ADDs of a network take.
func (m *model) behave() string {
	kinds := []string{"", "1ms", "300ms", "late 20s"}
	return kinds[m.randomUpTo(time.Duration(len(kinds)))]
}

// runSandboxes creates sandboxes until one starts. A sandbox may start while another pod has the shared claim, because the
// driver may not have heard of that yet, but its containers may not: see runContainers.
func (m *model) runSandboxes(name, id string) *api.PodSandbox {
	for n := 0; ; n++ {
		sb := m.newSandbox(fmt.Sprint(id, "-", n), name)
		err := m.nri(func(ctx context.Context, a *dra.Agent) error { return a.RunPodSandbox(ctx, sb) })
		if err == nil && !m.oneIn(8) { // otherwise the sandbox dies by itself
			return sb
		}
		m.endSandbox(sb)
		time.Sleep(time.Second + m.randomUpTo(5*time.Second))
		if n > 2000 {
			m.T.Errorf("%s never runs: %v", name, err)
			return m.Sandbox(name, name)
		}
	}
}

// runContainers waits until the containers of the pod can be created, and runs them. The kubelet may restart
// and prepare the claim again.
func (m *model) runContainers(sb *api.PodSandbox, claim *resourceapi.ResourceClaim, device string, shares bool) {
	m.call("a container of no claim", func(ctx context.Context, a *dra.Agent) error {
		if _, _, err := a.CreateContainer(ctx, sb, nil); err != nil {
			return err
		}
		for _, at := range m.Record(string(claim.UID)).Attachments {
			if what := sb.Id + " " + at.IfName; !at.Late && !slices.Contains(m.Plugins.InterfaceNames(), what) {
				m.T.Errorf("a container of no claim runs without %s", what)
			}
		}
		return nil
	})
	gates := []string{sb.Uid[len("uid-"):] + "_x", sb.Uid[len("uid-"):] + "_y"}
	for _, gate := range gates {
		m.call("a container of "+gate, func(ctx context.Context, a *dra.Agent) error {
			return m.CreateContainer(sb, gate)
		})
	}
	for _, ifName := range []string{"net1", "net2"} {
		if what := sb.Id + " " + ifName; !slices.Contains(m.Plugins.InterfaceNames(), what) {
			m.T.Errorf("a container runs without %s", what)
		}
	}
	if device != "" {
		m.configureInterface(device)
		m.setDevice(sb.Id, string(claim.UID), device)
		defer m.setDevice(sb.Id, string(claim.UID), "")
	}
	// Do not count shared networks, because they may be detached and attached again.
	dels := func() int { return m.Plugins.Calls("DEL "+sb.Id+" net1") + m.Plugins.Calls("DEL "+sb.Id+" net2") }
	if before := dels(); m.oneIn(3) {
		m.call("Prepare again", func(ctx context.Context, a *dra.Agent) error { return m.prepare(ctx, a, claim) })
		if now := dels(); now != before {
			m.T.Errorf("%d DELs of sandbox %s after the kubelet has restarted", now-before, sb.Id)
		}
	}
	if !shares {
		time.Sleep(m.randomUpTo(2 * time.Minute))
		return
	}
	m.call("a container of the shared claim", func(ctx context.Context, a *dra.Agent) error {
		return m.CreateContainer(sb, "shared_x", "shared_r_"+dratest.VF3)
	})
	m.recordAdmission(sb.Name, sb.Id)
	if len(m.Files("dp")) == 0 {
		m.T.Error("a container of the shared claim runs without the file that Multus copies")
	}
	for range 2 {
		if record := m.Record("shared"); string(record.Pod.UID) != sb.Uid || !slices.Contains(m.Plugins.InterfaceNames(), sb.Id+" net9") {
			m.T.Errorf("%s runs with the shared claim, which is pod %s's", sb.Name, record.Pod.Name)
		}
		if m.oneIn(3) {
			m.kubelet <- struct{}{}
			m.prepareShared()
			<-m.kubelet
		}
		time.Sleep(m.randomUpTo(time.Minute))
	}
}

// configureInterface changes the settings of the pod's interface. It may set the node's name of another device
// as an altname.
func (m *model) configureInterface(device string) {
	for id, name := range modelNames() {
		if name != device {
			continue
		}
		altNames := []string{"own-" + device}
		for other, d := range dratest.HardwareDevices() {
			if other != id && m.oneIn(2) {
				altNames = append(altNames, d.IfName)
			}
		}
		slices.Sort(altNames)
		left := settings.Dump{settings.AltNames: strings.Join(altNames, " ")}
		for _, setting := range append(settings.Names(), "rings", "ethtool-99") {
			if setting != settings.AltNames && m.oneIn(2) {
				left[setting] = "07"
			}
		}
		dratest.NoError(m.T, m.Kernel.Configure(id, left))
		if m.oneIn(2) {
			dratest.NoError(m.T, m.Kernel.Stack(id, "macvlan"))
		}
	}
}

// endSandbox ends a sandbox. Sometimes the runtime does not report it.
func (m *model) endSandbox(sb *api.PodSandbox) {
	m.mu.Lock()
	delete(m.sharedHolders, sb.Name)
	m.mu.Unlock()
	if !m.oneIn(10) {
		_ = m.nri(func(ctx context.Context, a *dra.Agent) error { return a.StopPodSandbox(ctx, sb) })
	}
	m.mu.Lock()
	delete(m.live, sb.Id)
	m.mu.Unlock()
	m.RemoveNetns(sb)
	m.ending.Go(func() { // the kernel removes the namespace later
		time.Sleep(m.randomUpTo(5 * time.Second))
		dratest.NoError(m.T, m.Kernel.EndNetns(dratest.NetnsOf(sb)))
	})
	if !m.oneIn(10) {
		_ = m.nri(func(ctx context.Context, a *dra.Agent) error { return a.RemovePodSandbox(ctx, sb) })
	}
}

// store updates a claim in the API server; nil deletes it.
func (m *model) store(uid string, claim *resourceapi.ResourceClaim) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if claim == nil {
		delete(m.claims, uid)
		return
	}
	m.changes++
	claim.ResourceVersion = strconv.Itoa(m.changes)
	m.claims[uid] = claim.DeepCopy()
}

// sharedClaim returns the API server's copy of the shared claim, or a new one without pods.
func (m *model) sharedClaim() *resourceapi.ResourceClaim {
	m.mu.Lock()
	defer m.mu.Unlock()
	if claim := m.claims["shared"]; claim != nil {
		return claim.DeepCopy()
	}
	claim := dratest.WithDeviceNodes(m.ClaimOf("shared", "shared", "", dratest.Net("x", "net9", "")))
	claim.Status.ReservedFor = nil
	return claim
}

// share reserves the shared claim for a pod. The kubelet prepares it for the first pod only.
func (m *model) share(name string) {
	m.kubelet <- struct{}{}
	defer func() { <-m.kubelet }()
	if len(m.reserveShared(name)) == 1 {
		m.prepareShared()
	}
}

// reserve is share for a pod whose claims clash. It reports whether the claim is prepared for another pod.
func (m *model) reserve(name string) (isPrepared bool) {
	m.kubelet <- struct{}{}
	defer func() { <-m.kubelet }()
	if len(m.reserveShared(name)) > 1 {
		return true
	}
	if agent := m.agentNow(); agent != nil {
		if err := m.prepare(context.Background(), agent, m.sharedClaim()); err == nil {
			m.T.Errorf("the shared claim is prepared for %s, whose own claim has its ifName", name)
		}
	}
	m.store("shared", nil) // before another pod takes it for prepared
	return false
}

func (m *model) reserveShared(name string) []resourceapi.ResourceClaimConsumerReference {
	claim := m.sharedClaim()
	claim.Status.ReservedFor = append(claim.Status.ReservedFor, m.ClaimOf("shared", "shared", name).Status.ReservedFor...)
	m.store("shared", claim)
	return claim.Status.ReservedFor
}

func (m *model) prepareShared() {
	m.call("Prepare of the shared claim", func(ctx context.Context, a *dra.Agent) error { return m.prepare(ctx, a, m.sharedClaim()) })
}

// unshare ends the reservation of a pod. The kubelet unprepares the claim after the last one.
func (m *model) unshare(name string) {
	m.kubelet <- struct{}{}
	defer func() { <-m.kubelet }()
	claim := m.sharedClaim()
	claim.Status.ReservedFor = slices.DeleteFunc(claim.Status.ReservedFor, func(c resourceapi.ResourceClaimConsumerReference) bool { return c.Name == name })
	m.store("shared", claim)
	if len(claim.Status.ReservedFor) == 0 {
		m.call("Unprepare of the shared claim", func(ctx context.Context, a *dra.Agent) error { return a.Unprepare(ctx, "shared") })
		m.store("shared", nil)
	}
}

// recordAdmission records that containers of a pod run with the shared claim.
func (m *model) recordAdmission(pod, sandbox string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for other, its := range m.sharedHolders {
		if other != pod {
			m.T.Errorf("sandbox %s is let in with the shared claim while sandbox %s of pod %s has it", sandbox, its, other)
		}
	}
	m.sharedHolders[pod] = sandbox
}
