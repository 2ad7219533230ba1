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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/state"
)

// The model test plays kubelet, runtime and plugins, all of which fail, to an agent that
// is restarted now and then. MODEL_SEED repeats a run, MODEL_TIME is how long to go on
// with new seeds ("make test-soak").
func TestPodsGetNetworksAndLeaveNothingDespiteFaults(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: it takes half a minute")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("MODEL_SEED"); text != "" {
		var err error
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
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

// model is a node whose kubelet and runtime are the test's.
type model struct {
	*rig
	ending sync.WaitGroup // namespaces
	random *rand.Rand     // mu

	mu            sync.Mutex
	running       *dra.Agent // nil = it is away
	live          map[string]*api.PodSandbox
	holding       map[string]string // by sandbox: the device of the node that its containers run with
	failingDELs   map[string]bool
	claims        map[types.UID]*resourceapi.ResourceClaim // that the API server has
	changes       int                                      // of these
	described     map[types.UID]bool                       // claims whose metadata the library has written
	sharedHolders map[string]string                        // by the pod that was let in with the shared claim: its sandbox
	faults        bool
	over          bool
	lives         int

	client  *fake.Clientset
	nodes   int           // how often the Node object was made anew
	kubelet chan struct{} // has room while nobody prepares or unprepares the shared claim
}

const (
	modelPods  = 6
	modelHours = 1
)

func runModel(t *testing.T, seed uint64) {
	r, p := newRig(t), newPlugins()
	r.options.Exec, r.options.Sweep, r.options.DelMinRetryTime = p, 0, 0
	r.options.Log = slog.New(slog.DiscardHandler)
	r.plugins = p
	r.addDevices()
	p.vlan = 7
	r.options.Devices.Journal = journalIn(r.dir, "boot1")
	m := &model{rig: r, random: rand.New(rand.NewPCG(seed, 0)), live: map[string]*api.PodSandbox{}, holding: map[string]string{}, failingDELs: map[string]bool{}, faults: true,
		claims: map[types.UID]*resourceapi.ResourceClaim{}, sharedHolders: map[string]string{}, described: map[types.UID]bool{}, client: modelServer(), kubelet: make(chan struct{}, 1)}
	r.options.Read, r.metadataWriter, p.givenUp = m.read, m, func(device string) bool { return m.isGivenUp(modelNames()[device]) }
	p.setHook(m.fault)
	p.kernel.Fault = func() error { return m.kernelFault() }
	m.restart()
	waitIdle()
	goroutines := runtime.NumGoroutine()
	var pods sync.WaitGroup
	for n := range modelPods {
		pods.Go(func() { m.pod(n) })
	}
	pods.Go(m.multusPods)
	pods.Go(m.hidePF)
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
	time.Sleep(3 * time.Hour) // what was given up is tried again
	waitIdle()
	r.expectNothing()
	expectRestored(t, p.kernel)
	m.expectLeases()
	if left := p.interfaceNames(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if now := runtime.NumGoroutine(); now > goroutines {
		t.Errorf("goroutines: %d, before: %d", now, goroutines)
	}
	t.Log("MODEL_SEED", seed, ":", m.lives, "lives,", p.calls("ADD"), "ADDs,", p.calls("DEL"), "DELs")
	if m.lives < modelPods*4 || len(p.violations) > 0 {
		t.Errorf("%d lives; %q", m.lives, p.violations)
	}
	r.stop()
}

func (m *model) randomUpTo(limit time.Duration) time.Duration {
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
func (m *model) fault(command, sandbox, _ string) error {
	if m.oneIn(6) {
		time.Sleep(m.randomUpTo(10 * time.Second))
	}
	if m.oneIn(50) {
		time.Sleep(claim.PluginLimit)
	}
	if m.oneIn(5) || command == "DEL" && m.failsDELs(sandbox) {
		return errors.New(command + " fails")
	}
	return nil
}

// kernelFault is what a kernel answers now and then.
func (m *model) kernelFault() error {
	if m.oneIn(8) {
		return errors.New("busy")
	}
	return nil
}

// restart ends the agent, lets it be away for a while, and starts the next one.
func (m *model) restart() {
	m.mu.Lock()
	m.running = nil
	m.mu.Unlock()
	if m.agent != nil {
		m.stop()
		m.expectLeases()
		time.Sleep(m.randomUpTo(time.Minute))
	}
	agent := m.start()
	m.mu.Lock()
	m.running = agent
	m.mu.Unlock()
	m.synchronize()
}

// synchronize tells the agent what it would be told by the runtime.
func (m *model) synchronize() {
	m.mu.Lock()
	defer m.mu.Unlock()
	pods := []*api.PodSandbox{}
	for _, sb := range m.live {
		pods = append(pods, sb)
	}
	_, err := m.running.Synchronize(context.Background(), pods, nil)
	must(m.t, err)
}

func (m *model) agentNow() *dra.Agent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running
}

// call calls the agent, as often as the kubelet would, until it succeeds. A pod that was deleted by force may wait
// for its device until the last pod of the hour has it no more, whose DEL is tried an hour later if it was given up.
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
	m.t.Errorf("%s waits for ever: %v: on record are%s", what, last, m.onRecord())
}

// onRecord lists the attachments on record, for a failure.
func (m *model) onRecord() (list string) {
	for _, name := range m.files("state") {
		data, _ := os.ReadFile(filepath.Join(m.options.StateDir, name)) // it may have been removed
		if c, err := state.Parse(name, data); err == nil {
			for _, at := range slices.Concat(c.Attachments, c.Undeleted) {
				list += fmt.Sprintf("\n%s: %s %s %s, tries %d: %s; %s", name, at.Device, at.Phase, at.Sandbox, at.Tries, at.Error, at.DelError)
			}
		}
	}
	return list
}

// failedRead is set if the agent could not read all claims in a call that has it in its context.
type failedRead struct{}

// read is the API server's, which is away or slow now and then.
func (m *model) read(ctx context.Context, ref kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
	switch {
	case m.oneIn(6):
		select {
		case <-ctx.Done():
		case <-time.After(m.randomUpTo(10 * time.Second)):
		}
		fallthrough
	case m.oneIn(6):
		if is, ok := ctx.Value(failedRead{}).(*atomic.Bool); ok {
			is.Store(true)
		}
		return nil, errors.New("the API server is away")
	}
	time.Sleep(m.randomUpTo(10 * time.Millisecond))
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claims[ref.UID].DeepCopy(), nil
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
