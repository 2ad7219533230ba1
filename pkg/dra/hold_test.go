package dra_test

import (
	"bytes"
	"context"
	"fmt"
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
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// The runtime's NRI server has one mutex for all requests of the node, so whoever waits in one holds all the others.

// Limits of what the driver's handlers hold the runtime.
const (
	holdAtFirst = time.Second            // a request of another pod, in any 10 s
	holdLater   = 100 * time.Millisecond // in any later second
	steady      = 10 * time.Second

	// 1.2 times what a burst took while sandboxes waited for ADD: 5.1 s and 25.5 s.
	burstOf20, burstOf100 = 6100 * time.Millisecond, 30600 * time.Millisecond
)

// node is a node with the runtime's own NRI server, and a kubelet that repeats what fails.
type node struct {
	*dratest.Rig
	runtime containerRuntime
	mu      sync.Mutex
	woken   chan struct{} // closed and replaced when the driver wakes the kubelet
}

// newNode starts a driver whose plugins have no processes.
func newNode(t testing.TB, r *dratest.Rig) *node {
	t.Helper()
	if r.Plugins == nil {
		r.UsePlugins()
	}
	r.Options.Hold = 0 // the default
	n := &node{Rig: r, runtime: serve(r), woken: make(chan struct{})}
	agent := connect(r, socket(r))
	adaptation.SetPluginRequestTimeout(2 * time.Second) // the default of containerd and CRI-O
	ctx, cancel := context.WithCancel(context.Background())
	reports := make(chan kubeletplugin.DeviceHealthReport)
	k := dra.Unstarted(agent, dra.KubeletOptions{Node: "node1"})
	agent.SetOpened(k.Wake)
	var calls sync.WaitGroup
	calls.Go(func() { _ = k.WatchHealthStatus(ctx, reports) })
	calls.Go(func() { n.watch(ctx, reports) })
	t.Cleanup(func() { cancel(); calls.Wait() })
	return n
}

// watch wakes the pods when a report changes what the kubelet compares.
func (n *node) watch(ctx context.Context, reports <-chan kubeletplugin.DeviceHealthReport) {
	last := map[string]time.Duration{}
	for {
		select {
		case <-ctx.Done():
			return
		case report := <-reports:
			changed := false
			for _, d := range report.Devices {
				was, known := last[d.DeviceName]
				changed = changed || known && was != d.HealthCheckTimeout
				last[d.DeviceName] = d.HealthCheckTimeout
			}
			if changed {
				n.mu.Lock()
				close(n.woken)
				n.woken = make(chan struct{})
				n.mu.Unlock()
			}
		}
	}
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
	pause := steady + time.Duration(i%11)*steady/20
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

// waits creates containers of another pod, one after another, until ctx ends. It returns the longest time that one waited
// in the first 10 s, and later.
func (n *node) waits(ctx context.Context) (first, later time.Duration) {
	other := n.Sandbox("other", "other")
	other.Namespace = "kube-system"
	for began := time.Now(); ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		asked := time.Now()
		took := timed(func() { dratest.NoError(n.T, n.createContainer(other)) })
		if asked.Sub(began) < steady {
			first = max(first, took)
		} else {
			later = max(later, took)
		}
	}
	return first, later
}

// hangs makes ADD of these pods hang until release is called.
func (n *node) hangs(pods string) (release func()) {
	released := make(chan struct{})
	n.Plugins.SetHook(func(command, sandbox, _ string) error {
		if command == "ADD" && strings.HasPrefix(sandbox, pods) {
			<-released
		}
		return nil
	})
	return sync.OnceFunc(func() { close(released) })
}

// benchNode returns a node for measurements.
func benchNode(b *testing.B) *node {
	r := benchRig(b)
	r.UsePlugins()
	return newNode(b, r)
}

// limit reports a duration, and fails the benchmark if it is longer than most.
func limit(b *testing.B, what string, took, most time.Duration) {
	b.Helper()
	b.ReportMetric(took.Seconds(), what+"-s")
	if took > most {
		b.Errorf("%s: %v, more than %v", what, took, most)
	}
}

// BenchmarkHangingNetwork measures how long other pods wait while the ADDs of a network hang: an unrelated container, and a
// pod with another network.
func BenchmarkHangingNetwork(b *testing.B) {
	for _, pods := range []int{10, 40} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			var first, later, healthy time.Duration
			for b.Loop() {
				n := benchNode(b)
				release := n.hangs("s1") // pods 1000, 1001, ...
				ctx, cancel := context.WithTimeout(b.Context(), 2*steady)
				var all sync.WaitGroup
				for i := range pods {
					n.Prepare(benchClaim(n.Rig, 1000+i))
					all.Go(func() { n.start(ctx, 1000+i) })
				}
				n.Prepare(ofOtherNetwork(dratest.FromTemplate(n.ClaimOf("healthy", "u2000", "pod2000", dratest.Net("x", "net1", "200ms")))))
				all.Go(func() { healthy = timed(func() { n.start(ctx, 2000) }) })
				first, later = n.waits(ctx)
				cancel()
				release()
				all.Wait()
			}
			limit(b, "container", first, holdAtFirst)
			limit(b, "container-later", later, holdLater)
			limit(b, "other-network", healthy, 2*time.Second)
		})
	}
}

// ofOtherNetwork gives the network of a claim another name.
func ofOtherNetwork(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	raw := &claim.Status.Allocation.Devices.Config[0].Opaque.Parameters.Raw
	*raw = bytes.Replace(*raw, []byte(`"name":"net"`), []byte(`"name":"other"`), 1)
	return claim
}

// BenchmarkBurst measures how long it takes until the last of many pods has its container. ADD takes 0.2 s.
func BenchmarkBurst(b *testing.B) {
	for pods, most := range map[int]time.Duration{20: burstOf20, 100: burstOf100} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				n := benchNode(b)
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
			limit(b, "last-container", took, most)
		})
	}
}

// BenchmarkSilentAPIServer measures how long pods wait while the API server does not answer: one without claims, and one
// whose ADD takes 0.2 s. With named claims of other pods the driver has to ask it.
func BenchmarkSilentAPIServer(b *testing.B) {
	for _, named := range []int{0, 2} {
		b.Run(fmt.Sprint(named, "-named"), func(b *testing.B) {
			var without, with time.Duration
			for b.Loop() {
				r := benchRig(b)
				silence(r)
				n := newNode(b, r)
				for i := range named {
					n.Prepare(n.ClaimOf(fmt.Sprint("named", i), fmt.Sprint("v", i), "holder", dratest.Net("x", fmt.Sprint("net", i), "")))
				}
				n.Prepare(dratest.FromTemplate(n.ClaimOf("own", "u1", "pod1", dratest.Net("x", "net1", "200ms"))))
				without = timed(func() { difftest.Must(b, n.runtime.runPod(n.Sandbox("s0", "without"))) })
				with = timed(func() { n.start(b.Context(), 1) })
			}
			limit(b, "without-claims", without, claim.DefaultHold+holdLater)
			limit(b, "with-claim", with, time.Second)
		})
	}
}

// silence makes the API server never answer.
func silence(r *dratest.Rig) {
	r.Options.Read = func(ctx context.Context, _ kubeletplugin.NamespacedObject) (*resourceapi.ResourceClaim, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.Options.ClaimsOf = func(ctx context.Context, _ state.Pod) ([]string, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
}
