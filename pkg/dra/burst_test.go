package dra_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/dratest"
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
			b.ReportMetric(took.Seconds(), "last-container-s")
			if took > most {
				b.Errorf("%v, more than %v", took, most)
			}
		})
	}
}
