package dra_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/state"
)

// The model test plays kubelet, runtime and plugins, all of which fail, to an agent that
// is restarted now and then. MODEL_SEED repeats a run, MODEL_TIME is how long to go on
// with new seeds ("make soak").
func TestWhateverHappensEveryPodGetsItsNetworksAndNothingIsLeft(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("MODEL_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
	}
	limit, _ := time.ParseDuration(os.Getenv("MODEL_TIME"))
	for began := time.Now(); ; seed++ {
		before := openFiles(t)
		synctest.Test(t, func(t *testing.T) { play(t, seed) })
		if now := openFiles(t); now > before {
			t.Errorf("open files: %d, before: %d", now, before)
		}
		if t.Failed() {
			t.Fatalf("MODEL_SEED=%d", seed)
		}
		if time.Since(began) >= limit {
			return
		}
	}
}

// model is a node whose kubelet and runtime are the test's.
type model struct {
	*rig
	plugins *plugins
	random  *rand.Rand // mu

	mu     sync.Mutex
	up     *dra.Agent // nil = it is away
	live   map[string]*api.PodSandbox
	users  []state.Pod // of the shared claim, as it is reserved
	on     int         // pods of the shared claim on the node
	faults bool
	over   bool
	lives  int
}

const (
	modelPods  = 6
	modelHours = 1
	sharers    = 2 // pods that share a claim
)

func play(t *testing.T, seed uint64) {
	r, p := newRig(t), newPlugins()
	r.options.Exec, r.options.Ordered, r.options.Sweep, r.options.DelPatience = p, seed%2 == 0, 0, 0
	r.options.Log = nil
	m := &model{rig: r, plugins: p, random: rand.New(rand.NewPCG(seed, 0)), live: map[string]*api.PodSandbox{}, faults: true}
	p.set(m.fault)
	m.restart()
	synctest.Wait()
	goroutines := runtime.NumGoroutine()
	var pods sync.WaitGroup
	for n := range modelPods {
		pods.Go(func() { m.pod(n) })
	}
	for end := time.Now().Add(modelHours * time.Hour); time.Now().Before(end); {
		time.Sleep(m.upTo(5 * time.Minute))
		m.restart()
	}
	m.mu.Lock()
	m.faults, m.over = false, true
	m.mu.Unlock()
	m.synchronize()
	pods.Wait()
	time.Sleep(3 * time.Hour) // what was given up is tried again
	synctest.Wait()
	r.expectNothing()
	if left := p.left(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("goroutines: %d, before: %d", now, goroutines)
	}
	t.Log(m.lives, "lives,", p.calls("ADD"), "ADDs,", p.calls("DEL"), "DELs")
	if m.lives < modelPods*10 || len(p.wrong) > 0 {
		t.Errorf("%d lives; %q", m.lives, p.wrong)
	}
	r.stop()
}

func (m *model) upTo(limit time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.random.Int64N(int64(limit)))
}

// oneIn says yes once in n times, while there are faults.
func (m *model) oneIn(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults && m.random.IntN(n) == 0
}

// fault is what plugins do before they do what they should.
func (m *model) fault(command, _, _ string) error {
	if m.oneIn(6) {
		time.Sleep(m.upTo(10 * time.Second))
	}
	if m.oneIn(50) {
		time.Sleep(dra.DefaultPluginLimit)
	}
	if m.oneIn(5) {
		return errors.New(command + " fails")
	}
	return nil
}

// restart ends the agent, lets it be away for a while, and starts the next one.
func (m *model) restart() {
	m.mu.Lock()
	m.up = nil
	m.mu.Unlock()
	if m.agent != nil {
		m.stop()
		time.Sleep(m.upTo(time.Minute))
	}
	agent := m.start()
	m.mu.Lock()
	m.up = agent
	m.mu.Unlock()
	m.synchronize()
}

// synchronize tells the agent what it would be told by runtime and API server.
func (m *model) synchronize() {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := []*api.PodSandbox{}
	for _, sb := range m.live {
		pods = append(pods, sb)
	}
	_, err := m.up.Synchronize(context.Background(), pods, nil)
	must(m.t, err)
	m.up.Reserve("shared", slices.Clone(m.users))
}

func (m *model) agentNow() *dra.Agent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.up
}

// call calls the agent, as often as the kubelet would, until it succeeds.
func (m *model) call(what string, f func(context.Context, *dra.Agent) error) {
	var last error
	for began := time.Now(); time.Since(began) < 2*time.Hour; time.Sleep(3 * time.Second) {
		agent := m.agentNow()
		if agent == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
		last = f(ctx, agent)
		cancel()
		if last == nil {
			return
		}
	}
	m.t.Errorf("%s waits for ever: %v", what, last)
}

// nri is a call of the runtime, which goes on without an agent that is away.
func (m *model) nri(f func(context.Context, *dra.Agent) error) error {
	agent := m.agentNow()
	if agent == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return f(ctx, agent)
}

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

func (m *model) life(n int, name string) {
	own := types.UID(name)
	claim := m.claimOf("own", own, name, want{"x", "net1", m.behave()}, want{"y", "net2", m.behave()})
	m.call("Prepare", func(ctx context.Context, a *dra.Agent) error { _, err := a.Prepare(ctx, claim); return err })
	shares := n < sharers
	if shares {
		m.share(name)
	}
	sb := m.sandboxes(name)
	m.containers(sb, shares)
	m.endSandbox(sb)
	if shares {
		m.unshare(name)
	}
	m.call("Unprepare", func(ctx context.Context, a *dra.Agent) error { return a.Unprepare(ctx, own) })
}

// behave is how long the ADDs of a network take.
func (m *model) behave() string {
	return [...]string{"", "1ms", "300ms", "late 20s"}[m.upTo(4)]
}

// sandboxes makes one after the other, until one runs.
func (m *model) sandboxes(name string) *api.PodSandbox {
	for n := 0; ; n++ {
		sb := m.sandbox(fmt.Sprint(name, "-", n), name)
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

// containers waits until containers of the pod can be made, and lets them run.
func (m *model) containers(sb *api.PodSandbox, shares bool) {
	gates := []string{sb.Uid[len("uid-"):] + "_x", sb.Uid[len("uid-"):] + "_y"}
	for _, gate := range gates {
		m.call("a container of "+gate, func(ctx context.Context, a *dra.Agent) error {
			_, _, err := a.CreateContainer(ctx, sb, container(gate))
			return err
		})
	}
	for _, ifName := range []string{"net1", "net2"} {
		if what := sb.Id + " " + ifName; !slices.Contains(m.plugins.left(), what) {
			m.t.Errorf("a container runs without %s", what)
		}
	}
	if shares && !m.isWaiting(sb) {
		m.call("a container of the shared claim", func(ctx context.Context, a *dra.Agent) error {
			if _, _, err := a.CreateContainer(ctx, sb, container("shared_x")); err != nil && !m.isWaiting(sb) {
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
