package dra_test

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	validator "github.com/containerd/nri/plugins/default-validator"

	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/test/difftest"
)

// containerRuntime is the NRI server of a container runtime.
type containerRuntime struct {
	*adaptation.Adaptation
	t testing.TB
}

// serve starts an NRI server that lists these sandboxes.
func serve(r *dratest.Rig, pods ...*api.PodSandbox) containerRuntime {
	r.T.Helper()
	return containerRuntime{nritest.Serve(r.T, socket(r), pods), r.T}
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
	difftest.Must(t, err)
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

func socket(r *dratest.Rig) string { return filepath.Join(r.Dir, "nri.sock") }

// connect starts an agent and keeps it connected to the runtime.
func connect(r *dratest.Rig, socket string) *dra.Agent {
	r.T.Helper()
	agent := r.Start()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		agent.ServeNRI(ctx, socket, "10")
	}()
	r.T.Cleanup(func() { cancel(); <-done })
	difftest.Eventually(r.T, "connected", func() bool { return agent.Connected() == nil })
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
	difftest.Must(c.t, c.StopPodSandbox(c.t.Context(), &adaptation.StopPodSandboxRequest{Pod: sb}))
	difftest.Must(c.t, c.RemovePodSandbox(c.t.Context(), &adaptation.RemovePodSandboxRequest{Pod: sb}))
}

func TestPluginErrorReachesRuntime(t *testing.T) {
	r := dratest.NewRig(t)
	nri := serve(r)
	connect(r, socket(r))
	r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "refuse")))
	difftest.Says(t, nri.runPod(r.Sandbox("s1", "pod")), "no address left")
	difftest.Must(t, nri.runPod(r.Sandbox("s2", "nobody's")))
}

func TestDriverReconnectsAndHandlesMissedEvents(t *testing.T) {
	t.Parallel()
	r := dratest.NewRig(t)
	first := serve(r)
	wire := newProxy(t, filepath.Join(r.Dir, "line"), socket(r))
	agent := connect(r, filepath.Join(r.Dir, "line"))
	r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), r.ClaimOf("b", "u2", "pod2", dratest.Net("x", "net1", "")), r.ClaimOf("c", "u3", "pod3", dratest.Net("x", "net1", "")))
	ended, stays, missed := r.Sandbox("s1", "pod"), r.Sandbox("s2", "pod2"), r.Sandbox("s3", "pod3")
	difftest.Must(t, first.runPod(ended))
	difftest.Must(t, first.runPod(stays))
	first.Stop()
	wire.disconnect()
	r.RemoveNetns(ended)
	difftest.Eventually(t, "disconnected", func() bool { return agent.Connected() != nil })
	second := serve(r, stays, missed)
	difftest.Eventually(t, "connected again", func() bool { return agent.Connected() == nil })
	difftest.Eventually(t, "the missed one is attached, the ended one detached", func() bool {
		return slices.Equal(r.Files("there"), []string{"s2_net1", "s3_net1"}) && len(r.Files("cdi")) == 2
	})
	second.end(stays)
	difftest.Equal(t, r.Files("there"), []string{"s3_net1"})
}

// While the driver restarts, only the runtime's own validator can keep a container from starting without the networks of its
// pod. It knows a plugin by its name, with or without the index.
func TestValidatorRefusesContainersWhileDriverRestarts(t *testing.T) {
	r := dratest.NewRig(t)
	globally := &validator.DefaultValidatorConfig{Enable: true, RequiredPlugins: []string{"10-" + dratest.Driver}, TolerateMissingAnnotation: "example.com/tolerate"}
	nri := containerRuntime{nritest.Serve(t, socket(r), nil, adaptation.WithDefaultValidator(globally)), t}
	wire := newProxy(t, filepath.Join(r.Dir, "line"), socket(r))
	agent := connect(r, filepath.Join(r.Dir, "line"))
	r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
	needs, tolerates := r.Sandbox("s1", "pod"), r.Sandbox("s2", "driver")
	annotation := regexp.MustCompile(`(required-plugins\.\S+): '(.*?)'`).FindStringSubmatch(difftest.Read(t, "../../docs/dra/README.md"))
	needs.Annotations = map[string]string{annotation[1]: annotation[2]}
	tolerates.Annotations = map[string]string{"example.com/tolerate": "true"}
	create := func(sb *api.PodSandbox) error {
		_, err := nri.CreateContainer(t.Context(), &adaptation.CreateContainerRequest{Pod: sb, Container: &api.Container{Id: "c", Name: "app"}})
		return err
	}
	difftest.Must(t, nri.runPod(needs), nri.runPod(tolerates), create(needs), create(tolerates))
	wire.Close()
	wire.disconnect()
	difftest.Eventually(t, "disconnected", func() bool { return agent.Connected() != nil })
	difftest.Eventually(t, "the runtime refuses the container", func() bool { return create(needs) != nil })
	difftest.Says(t, create(needs), `required plugins "10-`+dratest.Driver+`,`+dratest.Driver+`" not present`)
	difftest.Must(t, create(tolerates))
}

// A runtime does not list sandboxes whose state is uncertain.
func TestUnlistedSandboxStaysAttachedWhileItsNamespaceExists(t *testing.T) {
	r := dratest.NewRig(t)
	r.Start()
	sb := r.AttachPod(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")), r.ClaimOf("b", "u2", "pod2", dratest.Net("x", "net1", "")))
	r.ListSandboxes()
	for range 3 { // sweeps
		difftest.Eventually(t, "the gate is removed", func() bool { return os.RemoveAll(filepath.Join(r.Dir, "cdi")) == nil }) // the agent may write a spec during the removal
		difftest.Eventually(t, "the gate is open again", func() bool { return len(r.Files("cdi")) == 1 })
	}
	difftest.Equal(t, r.Files("there"), []string{"s1_net1"})
	difftest.Equal(t, r.Files("state"), []string{"u1.json", "u2.json"})
	r.RemoveNetns(sb)
	difftest.Eventually(t, "the sandbox is detached after its namespace was removed", func() bool { return len(r.Files("there")) == 0 })
}

// A sandbox must not run without its networks.
func TestSandboxFailsIfDriverIsLostDuringCall(t *testing.T) {
	r := dratest.NewRig(t)
	cni, asked, answer := r.UsePlugins(), make(chan struct{}), make(chan struct{})
	cni.SetHook(func(string, string, string) error { close(asked); <-answer; return nil })
	nri := serve(r)
	wire := newProxy(t, filepath.Join(r.Dir, "line"), socket(r))
	connect(r, filepath.Join(r.Dir, "line"))
	r.Prepare(r.ClaimOf("a", "u1", "pod", dratest.Net("x", "net1", "")))
	go func() { <-asked; wire.disconnect() }()
	err := nri.runPod(r.Sandbox("s1", "pod"))
	cni.SetHook(nil)
	close(answer)
	difftest.Says(t, err, "failed to handle RunPodSandbox request: ttrpc: closed")
}
