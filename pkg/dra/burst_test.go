package dra_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// Limits are 1.2 times what a burst took while sandboxes waited for ADD: 5.1 s and 25.5 s.
const burstOf20, burstOf100 = 6100 * time.Millisecond, 30600 * time.Millisecond

// node is a node with the runtime's own NRI server, and a kubelet that repeats what fails.
type node struct {
	*dratest.Rig
	runtime containerRuntime
	mu      sync.Mutex
	woken   chan struct{} // closed and replaced when the driver wakes the kubelet
}

// newNode starts a driver whose plugins have no processes. Functions in set change its options first.
func newNode(b *testing.B, set ...func(*dratest.Rig)) *node {
	b.Helper()
	r := benchRig(b)
	r.UsePlugins()
	for _, f := range set {
		f(r)
	}
	r.Options.Hold = 0 // the default
	n := &node{Rig: r, runtime: serve(r), woken: make(chan struct{})}
	agent := connect(r, socket(r))
	adaptation.SetPluginRequestTimeout(2 * time.Second) // the default of containerd and CRI-O
	ctx, cancel := context.WithCancel(context.Background())
	k := dra.Unstarted(agent, dra.KubeletOptions{Node: "node1"})
	agent.SetOpened(k.Wake)
	health := &stream{map[string]time.Duration{}, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		close(n.woken)
		n.woken = make(chan struct{})
	}}
	var calls sync.WaitGroup
	calls.Go(func() { health.read(ctx, k) })
	b.Cleanup(func() { cancel(); calls.Wait() })
	return n
}

func (n *node) wake() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.woken
}

// createContainer asks the runtime for a container with these gates: first it looks for the CDI devices, then it asks NRI.
func (n *node) createContainer(sb *api.PodSandbox, gates ...string) error {
	if err := n.CreateContainer(sb, gates...); err != nil {
		return err
	}
	_, err := n.runtime.CreateContainer(n.T.Context(), &adaptation.CreateContainerRequest{Pod: sb, Container: &adaptation.Container{Id: "c" + sb.Id, PodSandboxId: sb.Id}})
	return err
}

// start does what the kubelet does for pod number i with claim ui until its container exists, or ctx ends. The kubelet
// tries a failed sandbox or container again after 10 to 15 s, or when it is woken.
func (n *node) start(ctx context.Context, i int) *api.PodSandbox {
	pause := 10*time.Second + time.Duration(i%11)*time.Second/2
	for try := 0; ctx.Err() == nil; try++ {
		sb := n.Sandbox(fmt.Sprintf("s%d-%d", i, try), fmt.Sprint("pod", i))
		err := n.runtime.runPod(sb)
		for err == nil && ctx.Err() == nil {
			woken := n.wake()
			if n.createContainer(sb, fmt.Sprintf("u%d_x", i)) == nil {
				return sb
			}
			select {
			case <-woken:
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		n.runtime.end(sb)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
	return nil
}

// BenchmarkBurst measures how long it takes until the last of many pods has its container. ADD takes 0.2 s.
func BenchmarkBurst(b *testing.B) {
	for pods, most := range map[int]time.Duration{20: burstOf20, 100: burstOf100} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				n := newNode(b)
				for i := range pods {
					n.Prepare(dratest.FromTemplate(n.ClaimOf(fmt.Sprint("c", i), fmt.Sprint("u", i), fmt.Sprint("pod", i), dratest.Net("x", "net1", "200ms"))))
				}
				var all sync.WaitGroup
				took = timed(func() {
					for i := range pods {
						all.Go(func() { n.start(b.Context(), i) })
					}
					all.Wait()
				})
			}
			within(b, "last-container", took, most)
		})
	}
}

// within reports a duration, and fails the benchmark if it is longer than most.
func within(b *testing.B, what string, took, most time.Duration) {
	b.Helper()
	b.ReportMetric(took.Seconds(), what+"-s")
	if took > most {
		b.Errorf("%s: %v, more than %v", what, took, most)
	}
}

// BenchmarkHangingNetwork measures how long others wait while the ADDs of a network hang: containers of a pod without claims,
// together, and a pod with another network, whose ADD takes 0.2 s.
func BenchmarkHangingNetwork(b *testing.B) {
	const first, all = 10, 20 // seconds
	for _, pods := range []int{10, 40} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			var waits [all + 1]time.Duration // by second
			var healthy time.Duration
			for b.Loop() {
				n, released := newNode(b), make(chan struct{})
				n.Plugins.SetHook(func(command, sandbox, _ string) error {
					if command == "ADD" && !strings.HasPrefix(sandbox, "s0-") {
						<-released
					}
					return nil
				})
				ctx, cancel := context.WithTimeout(b.Context(), all*time.Second)
				var others sync.WaitGroup
				for i := range pods {
					n.Prepare(benchClaim(n.Rig, i+1))
					others.Go(func() { n.start(ctx, i+1) })
				}
				n.Prepare(dratest.OnNetwork("other", dratest.FromTemplate(n.ClaimOf("healthy", "u0", "pod0", dratest.Net("x", "net1", "200ms")))))
				others.Go(func() { healthy = timed(func() { n.start(ctx, 0) }) })
				without, began := n.Sandbox("without", "without"), time.Now()
				without.Namespace = "kube-system"
				for ; ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
					second := time.Since(began) / time.Second
					waits[second] += timed(func() { dratest.NoError(b, n.createContainer(without)) })
				}
				cancel()
				close(released)
				others.Wait()
			}
			var atFirst time.Duration
			for _, w := range waits[:first] {
				atFirst += w
			}
			within(b, "container-at-first", atFirst, time.Second)
			within(b, "container-later", slices.Max(waits[first:]), 100*time.Millisecond)
			within(b, "other-network", healthy, 2*time.Second)
		})
	}
}

// BenchmarkSilentAPIServer measures how long pods wait while the API server does not answer: one without claims, and one whose
// ADD takes 0.2 s. The driver asks it if the pods could use named claims of others.
func BenchmarkSilentAPIServer(b *testing.B) {
	for _, named := range []int{0, 2} {
		b.Run(fmt.Sprint(named, "-named"), func(b *testing.B) {
			var without, with time.Duration
			for b.Loop() {
				n := newNode(b, func(r *dratest.Rig) {
					r.Options.Read = func(ctx context.Context, _ kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					r.Options.ClaimsOf = func(ctx context.Context, _ state.Pod) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }
				})
				for i := range named {
					n.Prepare(n.ClaimOf(fmt.Sprint("named", i), fmt.Sprint("v", i), "holder", dratest.Net("x", fmt.Sprint("net", i), "")))
				}
				n.Prepare(dratest.FromTemplate(n.ClaimOf("own", "u0", "pod0", dratest.Net("x", "net1", "200ms"))))
				without = timed(func() { difftest.Must(b, n.runtime.runPod(n.Sandbox("without", "without"))) })
				with = timed(func() { n.start(b.Context(), 0) })
			}
			within(b, "without-claims", without, 600*time.Millisecond)
			within(b, "with-claim", with, time.Second)
		})
	}
}
