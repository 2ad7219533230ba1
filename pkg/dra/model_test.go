package dra_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// The test simulates the kubelet, the runtime and the plugins, with random faults, and restarts the driver now
// and then. MODEL_SEED repeats a run. MODEL_TIME is the time to continue with new seeds ("make test-crash CRASH=soak").
func TestPodsGetNetworksAndLeaveNothingDespiteFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes half a minute")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("MODEL_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		difftest.Must(t, err)
	}
	limit, _ := time.ParseDuration(os.Getenv("MODEL_TIME"))
	for began := time.Now(); ; seed++ {
		before := len(difftest.Names(t, "/proc/self/fd"))
		synctest.Test(t, func(t *testing.T) { runModel(t, seed) })
		if now := len(difftest.Names(t, "/proc/self/fd")); now > before {
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

// model is a node with a simulated kubelet and runtime.
type model struct {
	*dratest.Rig
	ending sync.WaitGroup // removals of network namespaces
	random *rand.Rand     // guarded by mu

	mu            sync.Mutex
	running       *dra.Agent     // nil = the driver is stopped
	started       time.Time      // when it was started
	held          [][2]time.Time // begin and end of requests of the runtime in the last 10 s
	live          map[string]*api.PodSandbox
	holding       map[string]string // by sandbox: device that its containers use
	allocated     map[string]bool   // ports that the scheduler has allocated
	offered       inventory.Published
	failingDELs   map[string]bool
	claims        map[string]*resourceapi.ResourceClaim // claims that the API server has
	changes       int                                   // number of changes of claims
	described     map[string]bool                       // claims with metadata from kubeletplugin
	sharedHolders map[string]string                     // by pod: the sandbox that started with the shared claim
	faults        bool
	over          bool
	lives         int

	client  *fake.Clientset
	nodes   int           // number of replacements of the Node object
	kubelet chan struct{} // held while the shared claim is prepared or unprepared
	slices  chan struct{} // held while the slices are read
}

const (
	modelPods  = 8
	modelHours = 1
)

func runModel(t *testing.T, seed uint64) {
	r := dratest.NewRig(t)
	p := r.UsePlugins()
	r.Options.Log, r.Options.Sweep, r.Options.DelMinRetryTime, r.Options.Hold = slog.New(slog.DiscardHandler), 0, 0, 0
	host := dratest.NewNode(t, "mlx5-switchdev")
	reset := []string{"auto", "always"}[seed%2]
	host.Text = withPorts(host.Text)
	host.Rules = strings.ReplaceAll(dratest.Rules, "sharing: exclusive", "sharing: exclusive\n  reset: "+reset) + "- ifNames: [p1, p2]\n  sharing: exclusive\n"
	r.Kernel, p.VLAN = dratest.AddDevicesOf(host.Text, &r.Options, r.Dir), 7
	var resets atomic.Int32 // of a VF that no claim binds to another driver
	r.Options.Devices.Custody = restore.New(r.Kernel.Sys(), func(name, text string) error {
		if strings.HasSuffix(name, "/unbind") && strings.HasPrefix(text, "0000:03:00.2") {
			resets.Add(1)
		}
		return r.Kernel.Write(name, text)
	}, r.Kernel)
	r.Options.Devices.Inventory = host.Inventory()
	r.Options.Devices.Journal = dratest.JournalIn(r.Dir, "boot1")
	m := &model{Rig: r, random: rand.New(rand.NewPCG(seed, 0)), live: map[string]*api.PodSandbox{}, holding: map[string]string{}, failingDELs: map[string]bool{}, faults: true,
		claims: map[string]*resourceapi.ResourceClaim{}, sharedHolders: map[string]string{}, described: map[string]bool{}, client: fake.NewClientset(nodeOf(0)), kubelet: make(chan struct{}, 1),
		slices: make(chan struct{}, 1), allocated: map[string]bool{}}
	r.Options.ClaimsOf = m.claimsOf
	r.Options.Read, r.MetadataWriter, p.GivenUp = m.read, m, func(device string) bool { return m.isGivenUp(modelNames()[device]) }
	p.SetHook(m.fault)
	r.Kernel.Fault, r.Kernel.Spares = func() error { return m.kernelFault() }, true
	m.restart()
	dratest.WaitIdle()
	goroutines := runtime.NumGoroutine()
	var pods sync.WaitGroup
	for n := range modelPods {
		pods.Go(func() { m.pod(n) })
	}
	pods.Go(m.multusPods)
	pods.Go(m.hidePF)
	pods.Go(func() { m.reroute(host) })
	for end := time.Now().Add(modelHours * time.Hour); time.Now().Before(end); {
		time.Sleep(m.randomUpTo(5 * time.Minute))
		m.kubeletRestarts()
		m.restart()
	}
	m.mu.Lock()
	m.faults, m.over = false, true
	m.mu.Unlock()
	m.synchronize()
	pods.Wait()
	m.ending.Wait()
	time.Sleep(3 * time.Hour) // DELs that were given up are retried
	dratest.WaitIdle()
	difftest.Must(t, state.WriteOffer(r.Options.StateDir, nil)) // the running driver wrote it
	r.ExpectNothing()
	dratest.ExpectRestored(t, r.Kernel)
	m.expectLeases()
	difftest.Same(t, "interfaces", p.InterfaceNames(), []string(nil))
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("goroutines: %d, before: %d", now, goroutines)
	}
	t.Log("MODEL_SEED", seed, ":", m.lives, "lives,", p.Calls("ADD"), "ADDs,", p.Calls("DEL"), "DELs")
	if m.lives < modelPods*3 || len(p.Violations) > 0 || (resets.Load() > 0) != (reset == "always") {
		t.Errorf("%d lives; reset: %s, %d resets; %q", m.lives, reset, resets.Load(), p.Violations)
	}
	r.Stop()
}

func (m *model) randomUpTo(limit time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Duration(m.random.Int64N(int64(limit)))
}

// oneIn returns true once in n calls on average, while faults are enabled.
func (m *model) oneIn(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.faults && m.random.IntN(n) == 0
}

// fault is a hook of the plugins that delays or fails calls at random.
func (m *model) fault(command, sandbox, _ string) error {
	if m.oneIn(6) {
		time.Sleep(m.randomUpTo(10 * time.Second))
	}
	if m.oneIn(50) {
		time.Sleep(network.PluginLimit)
	}
	if m.oneIn(5) || command == "DEL" && m.failsDELs(sandbox) {
		return errors.New(command + " fails")
	}
	return nil
}

// kernelFault fails changes of devices at random.
func (m *model) kernelFault() error {
	if m.oneIn(8) {
		return errors.New("busy")
	}
	return nil
}

// restart stops the agent and starts the next one after a while.
func (m *model) restart() {
	m.mu.Lock()
	m.running = nil
	m.mu.Unlock()
	if m.Agent != nil {
		m.Stop()
		m.expectLeases()
		time.Sleep(m.randomUpTo(time.Minute))
	}
	agent := m.Start()
	m.mu.Lock()
	m.running, m.started = agent, time.Now()
	m.mu.Unlock()
	m.synchronize()
}

// synchronize lists all running sandboxes to the agent.
func (m *model) synchronize() {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := []*api.PodSandbox{}
	for _, sb := range m.live {
		pods = append(pods, sb)
	}
	_, err := m.running.Synchronize(context.Background(), pods, nil)
	difftest.Must(m.T, err)
}

func (m *model) agentNow() *dra.Agent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// call repeats f until it succeeds, like the kubelet. A pod that was deleted by force may have to wait for its device
// until the last pod of the simulated hour releases it. If that pod's DEL was given up, its retry comes an hour later.
func (m *model) call(what string, f func(context.Context, *dra.Agent) error) {
	var last error
	for began := time.Now(); time.Since(began) < 4*time.Hour; time.Sleep(3 * time.Second) {
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
	m.T.Errorf("%s never succeeds: %v; on record:%s", what, last, m.onRecord())
}

// onRecord lists the attachments on record, for failure messages.
func (m *model) onRecord() (list string) {
	for _, name := range m.Files("state") {
		data, _ := os.ReadFile(filepath.Join(m.Options.StateDir, name)) // the file may have been removed
		if c, err := state.Parse(name, data); err == nil {
			for _, at := range slices.Concat(c.Attachments, c.Undeleted) {
				list += fmt.Sprintf("\n%s: %s %s %s, tries %d: %s; %s", name, at.Device, at.Phase, at.Sandbox, at.Tries, at.Error, at.DelError)
			}
		}
	}
	return list
}

// read simulates an API server that is slow or unreachable now and then.
func (m *model) read(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
	if err := m.serve(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims[string(ref.UID)].DeepCopy(), nil
}

// claimsOf returns the claims that are reserved for a pod.
func (m *model) claimsOf(ctx context.Context, pod state.Pod) (names []string, err error) {
	if err := m.serve(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, claim := range m.claims {
		if slices.ContainsFunc(claim.Status.ReservedFor, func(c resourceapi.ResourceClaimConsumerReference) bool { return string(c.UID) == pod.UID }) {
			names = append(names, claim.Name)
		}
	}
	return names, nil
}

// serve returns the error of a request to the API server.
func (m *model) serve(ctx context.Context) error {
	switch {
	case m.oneIn(6):
		select {
		case <-ctx.Done():
		case <-time.After(m.randomUpTo(10 * time.Second)):
		}
		fallthrough
	case m.oneIn(6):
		return errors.New("the API server is away")
	}
	time.Sleep(m.randomUpTo(10 * time.Millisecond))
	return nil
}

// nri calls the agent like the runtime, which continues if the agent is not running.
func (m *model) nri(f func(context.Context, *dra.Agent) error) error {
	agent := m.agentNow()
	if agent == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	began := time.Now()
	err := f(ctx, agent)
	m.expectWithinBudget(began)
	return err
}

// expectWithinBudget checks a request of the runtime that has just ended: one waits for at most [claim.DefaultHold], and all
// together, since the driver started, for at most 1 s in any 10 s.
func (m *model) expectWithinBudget(began time.Time) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = append(slices.DeleteFunc(m.held, func(h [2]time.Time) bool { return now.Sub(h[0]) > 10*time.Second }), [2]time.Time{began, now})
	var sum time.Duration
	for _, h := range m.held {
		if h[0].After(m.started) {
			sum += h[1].Sub(h[0])
		}
	}
	if now.Sub(began) > claim.DefaultHold || sum > time.Second {
		m.T.Errorf("the driver holds the runtime for %v, and for %v in 10 s", now.Sub(began), sum)
	}
}
