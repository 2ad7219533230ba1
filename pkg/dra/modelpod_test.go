package dra_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
)

// pod is one life of a pod after the other.
func (m *model) pod(n int) {
	for life := 0; ; life++ {
		name := fmt.Sprintf("pod%d-%d", n, life)
		m.life(n, name)
		m.mu.Lock()
		m.lives++
		over := m.over
		m.mu.Unlock()
		if over {
			return
		}
	}
}

// life is that of a pod: its claim may get another device for the pod's next sandbox, and an
// administrator may delete the pod by force, so that the next one has its device allocated.
func (m *model) life(n int, name string) {
	own := types.UID(name)
	unprepare := func() {
		m.call("Unprepare", func(ctx context.Context, a *dra.Agent) error { return a.Unprepare(ctx, own) })
	}
	shares := n < sharers
	for turn, d := range modelDevices()[n][:1+m.upTo(time.Duration(len(modelDevices()[n])))] {
		claim := m.claimOf("own", own, name, want{"x", "net1", m.behave()}, want{"y", "net2", m.behave()})
		switch {
		case d.name == pf:
			claim.Status.Allocation.Devices.Results[0].Device = pf
			raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
			*raw = append([]byte(`{"device":[{"plugin":"fake","key":"master"}],`), (*raw)[1:]...)
		case d.name != "":
			m.untilOffered(d.name)
			onDevice(claim, 0, d.name, d.driver)
		}
		m.call("Prepare", func(ctx context.Context, a *dra.Agent) error { _, err := a.Prepare(ctx, claim); return err })
		if shares {
			m.share(name)
		}
		sb := m.sandboxes(name, fmt.Sprint(name, "-", turn))
		if d.name != "" && m.oneIn(4) {
			m.ending.Go(func() {
				m.containers(sb, claim, d.name, shares)
				m.curse(sb.Id)
				m.endSandbox(sb)
				unprepare()
			})
			return
		}
		m.containers(sb, claim, d.name, shares)
		m.curse(sb.Id)
		m.endSandbox(sb)
		if shares {
			m.unshare(name)
		}
	}
	unprepare()
}

type modelDevice struct{ name, driver string }

// modelDevices are those that a pod's claim has, one after the other; "" is none.
func modelDevices() [modelPods][]modelDevice {
	return [modelPods][]modelDevice{{{"", ""}}, {{"", ""}}, {{vf0, ""}, {sf4, ""}}, {{vf2, "vfio-pci"}}, {{pf, ""}}, {{"", ""}}}
}

// untilOffered waits as the scheduler does until a device may be allocated that was given up.
func (m *model) untilOffered(device string) {
	for began := time.Now(); time.Since(began) < 3*time.Hour; time.Sleep(time.Minute) {
		left, err := state.Leftovers(m.options.StateDir)
		wants(m.t, err)
		if !slices.ContainsFunc(left, func(l state.Leftover) bool { return l.Device == "node1/"+device }) {
			return
		}
	}
	m.t.Errorf("%s stays given up", device)
}

// behave is how long the ADDs of a network take.
func (m *model) behave() string {
	return [...]string{"", "1ms", "300ms", "late 20s"}[m.upTo(4)]
}

// sandboxes makes one after the other, until one runs.
func (m *model) sandboxes(name, id string) *api.PodSandbox {
	for n := 0; ; n++ {
		sb := m.sandbox(fmt.Sprint(id, "-", n), name)
		m.mu.Lock()
		m.live[sb.Id] = sb
		m.mu.Unlock()
		err := m.nri(func(ctx context.Context, a *dra.Agent) error { return a.RunPodSandbox(ctx, sb) })
		if err == nil && !m.oneIn(8) { // else it dies by itself
			return sb
		}
		m.endSandbox(sb)
		time.Sleep(time.Second + m.upTo(5*time.Second))
		if n > 2000 {
			m.t.Errorf("%s never runs: %v", name, err)
			return m.sandbox(name, name)
		}
	}
}

// containers waits until containers of the pod can be made, and lets them run. The kubelet may
// restart meanwhile, and prepares the claim anew.
func (m *model) containers(sb *api.PodSandbox, claim *resourceapi.ResourceClaim, device string, shares bool) {
	gates := []string{sb.Uid[len("uid-"):] + "_x", sb.Uid[len("uid-"):] + "_y"}
	for _, gate := range gates {
		m.call("a container of "+gate, func(ctx context.Context, a *dra.Agent) error {
			return m.admits(sb, gate)
		})
	}
	for _, ifName := range []string{"net1", "net2"} {
		if what := sb.Id + " " + ifName; !slices.Contains(m.plugins.left(), what) {
			m.t.Errorf("a container runs without %s", what)
		}
	}
	if device != "" {
		m.holds(sb.Id, claim.UID, device)
		defer m.holds(sb.Id, claim.UID, "")
	}
	if dels := m.plugins.calls("DEL " + sb.Id); m.oneIn(3) {
		m.call("Prepare again", func(ctx context.Context, a *dra.Agent) error { _, err := a.Prepare(ctx, claim); return err })
		if n := m.plugins.calls("DEL " + sb.Id); n != dels {
			m.t.Errorf("%d DELs of sandbox %s after the kubelet has restarted", n-dels, sb.Id)
		}
	}
	if shares && !m.isWaiting(sb) {
		m.call("a container of the shared claim", func(ctx context.Context, a *dra.Agent) error {
			if err := m.admits(sb, "shared_x"); err != nil && !m.isWaiting(sb) {
				return err
			}
			return nil
		})
	}
	time.Sleep(m.upTo(2 * time.Minute))
}

// endSandbox ends it as a runtime does, which sometimes forgets to say so.
func (m *model) endSandbox(sb *api.PodSandbox) {
	if !m.oneIn(10) {
		_ = m.nri(func(ctx context.Context, a *dra.Agent) error { return a.StopPodSandbox(ctx, sb) })
	}
	m.mu.Lock()
	delete(m.live, sb.Id)
	m.mu.Unlock()
	m.unmake(sb)
	m.ending.Go(func() { // the kernel ends the namespace when it gets round to it
		time.Sleep(m.upTo(5 * time.Second))
		wants(m.t, m.plugins.kernel.EndNetns(netnsOf(sb)))
	})
	if !m.oneIn(10) {
		_ = m.nri(func(ctx context.Context, a *dra.Agent) error { return a.RemovePodSandbox(ctx, sb) })
	}
}

// share reserves the claim that pods share, and prepares it if no other of them is here.
func (m *model) share(name string) {
	m.mu.Lock()
	m.users = append(m.users, state.Pod{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)})
	m.on++
	first := m.on == 1
	m.tellUsers()
	m.mu.Unlock()
	if !first {
		return
	}
	m.call("Prepare of the shared claim", func(ctx context.Context, a *dra.Agent) error {
		claim := m.claimOf("shared", "shared", name, want{"x", "net9", ""})
		m.mu.Lock()
		claim.Status.ReservedFor = nil
		for _, u := range m.users {
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, m.claimOf("shared", "shared", u.Name).Status.ReservedFor...)
		}
		m.mu.Unlock()
		_, err := a.Prepare(ctx, claim)
		return err
	})
}

// unshare is for a pod that has ended. The kubelet unprepares a claim after the last one.
func (m *model) unshare(name string) {
	m.mu.Lock()
	m.on--
	last := m.on == 0
	m.users = slices.DeleteFunc(slices.Clone(m.users), func(p state.Pod) bool { return p.Name == name })
	m.tellUsers()
	m.mu.Unlock()
	if last {
		m.call("Unprepare of the shared claim", func(ctx context.Context, a *dra.Agent) error {
			if m.mu.Lock(); m.on > 0 { // prepared again, by a pod that has come meanwhile
				m.mu.Unlock()
				return nil
			}
			m.mu.Unlock()
			return a.Unprepare(ctx, "shared")
		})
	}
}

func (m *model) tellUsers() {
	if m.up != nil {
		m.up.Reserve("shared", slices.Clone(m.users))
	}
}

// isWaiting says whether another pod came before.
func (m *model) isWaiting(sb *api.PodSandbox) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on > 1
}
