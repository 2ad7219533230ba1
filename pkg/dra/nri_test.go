package dra_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/test/difftest"
)

// containerRuntime is the NRI server of a container runtime.
type containerRuntime struct {
	*adaptation.Adaptation
	t *testing.T
}

// serve starts an NRI server that lists these sandboxes.
func (r *rig) serve(t *testing.T, pods ...*api.PodSandbox) containerRuntime {
	t.Helper()
	return containerRuntime{nritest.Serve(t, r.socket(), pods), t}
}

// proxy connects the agent to a runtime. It is needed because the runtime's NRI server never closes a
// connection; a real runtime process exits.
type proxy struct {
	net.Listener
	to    string
	mu    sync.Mutex
	conns []net.Conn
}

func newProxy(t *testing.T, from, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("unix", from)
	must(t, err)
	l := &proxy{Listener: listener, to: to}
	var copies sync.WaitGroup
	copies.Go(func() {
		for {
			agent, err := l.Accept()
			if err != nil {
				return
			}
			runtime, err := net.Dial("unix", l.to)
			if err != nil {
				agent.Close()
				continue
			}
			l.mu.Lock()
			l.conns = append(l.conns, agent, runtime)
			l.mu.Unlock()
			copies.Go(func() { _, _ = io.Copy(agent, runtime); agent.Close() })
			copies.Go(func() { _, _ = io.Copy(runtime, agent); runtime.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); l.disconnect(); copies.Wait() })
	return l
}

func (p *proxy) disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}

func (r *rig) socket() string { return filepath.Join(r.dir, "nri.sock") }

// connect starts an agent and keeps it connected to the runtime.
func (r *rig) connect(t *testing.T, socket string) *dra.Agent {
	t.Helper()
	agent := r.start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := agent.ServeNRI(ctx, socket, "10"); err != context.Canceled {
			t.Errorf("got %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	difftest.Eventually(t, "connected", agent.Connected)
	return agent
}

// runPod waits until connected plugins are synchronized, like a runtime, and then starts a sandbox.
func (c containerRuntime) runPod(sb *api.PodSandbox) error {
	defer c.BlockPluginSync().Unblock()
	return c.RunPodSandbox(c.t.Context(), &adaptation.RunPodSandboxRequest{Pod: sb})
}

// end stops and removes a sandbox.
func (c containerRuntime) end(sb *api.PodSandbox) {
	c.t.Helper()
	must(c.t, c.StopPodSandbox(c.t.Context(), &adaptation.StopPodSandboxRequest{Pod: sb}))
	must(c.t, c.RemovePodSandbox(c.t.Context(), &adaptation.RemovePodSandboxRequest{Pod: sb}))
}

func TestPluginErrorReachesRuntime(t *testing.T) {
	r := newRig(t)
	nri := r.serve(t)
	r.connect(t, r.socket())
	r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "refuse"}))
	says(t, nri.runPod(r.sandbox("s1", "pod")), "no address left")
	must(t, nri.runPod(r.sandbox("s2", "nobody's")))
}

func TestDriverReconnectsAndHandlesMissedEvents(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.serve(t)
	wire := newProxy(t, filepath.Join(r.dir, "line"), r.socket())
	agent := r.connect(t, filepath.Join(r.dir, "line"))
	r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), r.claimOf("b", "u2", "pod2", netRequest{"x", "net1", ""}), r.claimOf("c", "u3", "pod3", netRequest{"x", "net1", ""}))
	ended, stays, missed := r.sandbox("s1", "pod"), r.sandbox("s2", "pod2"), r.sandbox("s3", "pod3")
	must(t, first.runPod(ended))
	must(t, first.runPod(stays))
	first.Stop()
	wire.disconnect()
	r.removeNetns(ended)
	difftest.Eventually(t, "disconnected", func() bool { return !agent.Connected() })
	second := r.serve(t, stays, missed)
	difftest.Eventually(t, "connected again", agent.Connected)
	difftest.Eventually(t, "the missed one is attached, the ended one detached", func() bool {
		return slices.Equal(r.files("there"), []string{"s2_net1", "s3_net1"}) && len(r.files("cdi")) == 2
	})
	second.end(stays)
	r.expectInterfaces("s3_net1")
}

// A runtime does not list sandboxes whose state is uncertain.
func TestUnlistedSandboxStaysAttachedWhileItsNamespaceExists(t *testing.T) {
	r := newRig(t)
	r.start()
	sb := r.attachPod(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}), r.claimOf("b", "u2", "pod2", netRequest{"x", "net1", ""}))
	difftest.Eventually(t, "the gate is removed", func() bool { return os.RemoveAll(filepath.Join(r.dir, "cdi")) == nil }) // the agent may write a spec during the removal
	r.listSandboxes()
	difftest.Eventually(t, "the gate is open again", func() bool { return len(r.files("cdi")) == 1 })
	time.Sleep(100 * time.Millisecond) // several sweeps
	r.expectInterfaces("s1_net1")
	difftest.Equal(t, r.files("state"), []string{"u1.json", "u2.json"})
	r.removeNetns(sb)
	difftest.Eventually(t, "the sandbox is detached after its namespace was removed", func() bool { return len(r.files("there")) == 0 })
}

// A sandbox must not run without its networks.
func TestSandboxFailsIfDriverIsLostDuringCall(t *testing.T) {
	r := newRig(t)
	cni, asked, answer := newPlugins(), make(chan struct{}), make(chan struct{})
	cni.setHook(func(string, string, string) error { close(asked); <-answer; return nil })
	r.options.Exec = cni
	nri := r.serve(t)
	wire := newProxy(t, filepath.Join(r.dir, "line"), r.socket())
	r.connect(t, filepath.Join(r.dir, "line"))
	r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", ""}))
	go func() { <-asked; wire.disconnect() }()
	err := nri.runPod(r.sandbox("s1", "pod"))
	cni.setHook(nil)
	close(answer)
	says(t, err, "failed to handle RunPodSandbox request: ttrpc: closed")
}

func TestADDBeyondRuntimeTimeoutFailsPodAndIsUndone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		var told []string
		r.options.Notify = func(n claim.Notice) { told = append(told, n.Reason) }
		r.start()
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "10s"}, netRequest{"y", "net2", ""}), r.claimOf("a", "u2", "quick", netRequest{"x", "net1", ""}))
		slow, again := r.sandbox("s1", "pod"), r.sandbox("s2", "pod")
		began := time.Now()
		expect := func(err error, part string, after time.Duration) {
			t.Helper()
			if took := time.Since(began); err == nil || !strings.Contains(err.Error(), part) || took != after {
				t.Errorf("after %v: %v", took, err)
			}
		}
		expect(r.runPod(slow), "raise plugin_request_timeout", 1700*time.Millisecond)
		r.endPod(slow)
		expect(r.runPod(again), "the CNI plugins of an earlier sandbox, s1, are still running", 1700*time.Millisecond)
		must(t, r.runPod(r.sandbox("s3", "quick")))
		expect(errors.New("held up"), "held up", 1700*time.Millisecond)
		time.Sleep(time.Minute)
		difftest.Equal(t, p.interfaceNames(), []string{"s3 net1"})
		r.expectPhase("Prepared", 2)
		difftest.Equal(t, told, []string{claim.NoticeLate, claim.NoticeFailed})
	})
}

func TestStopWaitsForRunningPlugins(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		agent := r.start()
		r.prepare(r.claimOf("a", "u1", "pod", netRequest{"x", "net1", "1m"}))
		says(t, r.runPod(r.sandbox("s1", "pod")), "plugin_request_timeout")
		began := time.Now()
		r.stop()
		if took := time.Since(began); took < 58*time.Second || took > time.Minute || len(p.interfaceNames()) > 0 || p.calls("DEL s1 net1") != 1 {
			t.Errorf("stop took %v: %q", took, p.started)
		}
		says(t, agent.Unprepare(t.Context(), "u1"), "the driver has stopped")
		r.start()
		began = time.Now()
		if r.stop(); time.Since(began) > 0 {
			t.Errorf("an agent that does nothing takes %v to end", time.Since(began))
		}
	})
}
