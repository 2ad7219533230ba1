package faults_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/podresources/podresourcestest"
	"devinfo-cni.io/pkg/dra/dratest"
	"devinfo-cni.io/pkg/dra/status"
	"devinfo-cni.io/test/difftest"
)

// A door is a socket before a server, which may lose a part of the answers.
type door struct {
	net.Listener
	server string // its socket
	mu     sync.Mutex
	left   int  // bytes that pass before the fault; negative = no fault
	silent bool // the fault is that nothing more comes; otherwise the connection ends
	passed int  // bytes of answers
	conns  []net.Conn
}

func openDoor(t *testing.T, server string) *door {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	difftest.Must(t, err)
	d := &door{Listener: listener, server: server, left: -1}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := d.Accept()
			if err != nil {
				return
			}
			running.Go(func() { d.serve(client) })
		}
	})
	t.Cleanup(func() { listener.Close(); d.set(-1, false); running.Wait() })
	return d
}

// set chooses the fault of further connections, and ends those that exist. It returns the bytes that have passed.
func (d *door) set(left int, silent bool) (passed int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.conns {
		c.Close()
	}
	passed = d.passed
	d.left, d.silent, d.passed, d.conns = left, silent, 0, nil
	return passed
}

func (d *door) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", d.server)
	if err != nil {
		return
	}
	defer server.Close()
	d.mu.Lock()
	left, silent := d.left, d.silent
	d.conns = append(d.conns, client, server)
	d.mu.Unlock()
	go func() { _, _ = io.Copy(server, client); server.Close() }() // until one of them ends
	answer := make([]byte, 1<<16)
	for {
		n, err := server.Read(answer)
		if left >= 0 {
			n = min(n, left)
			left -= n
		}
		d.mu.Lock()
		d.passed += n
		d.mu.Unlock()
		if _, writeErr := client.Write(answer[:n]); err != nil || writeErr != nil {
			return
		}
		if left == 0 {
			if silent {
				_, _ = io.Copy(io.Discard, client) // until the client gives up
			}
			return
		}
	}
}

// cuts is the number of places at which an answer is cut off.
const cuts = 10

// eachFault calls f after each fault of the door, whose answers have a number of bytes without one.
func (d *door) eachFault(whole int, f func(what string)) {
	for n := range cuts {
		at := whole * n / cuts
		for _, silent := range []bool{false, true} {
			d.set(at, silent)
			f(fmt.Sprintf("%d of %d bytes, silent %v", at, whole, silent))
		}
	}
	d.set(-1, false)
}

// A call asks a server.
type call struct {
	name string
	ask  func(context.Context) (any, error)
}

// patience ends calls that get no answer.
const patience = 100 * time.Millisecond

// try lets each call fail in each way. It must say so, and give nothing, or what it gives without a fault. A call that gives
// nothing must say so, and not that the object is gone.
func (c call) try(t *testing.T, d *door) {
	t.Helper()
	d.set(-1, false) // forget what has passed
	want, err := c.ask(t.Context())
	difftest.Must(t, err)
	d.eachFault(d.set(-1, false), func(what string) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, err := c.ask(ctx)
		if err == nil && (want == nil || !reflect.DeepEqual(got, want)) || errors.Is(err, status.ErrGone) {
			t.Errorf("%s, %s: %v, %v", c.name, what, got, err)
		}
	})
	got, err := c.ask(t.Context())
	difftest.Must(t, err)
	difftest.Same(t, c.name+" after the faults", got, want)
}

func TestKubeletThatFailsIsNotAnEmptyAnswer(t *testing.T) {
	t.Parallel()
	socket, vf := filepath.Join(t.TempDir(), "kubelet"), "example.com/vf"
	var answer atomic.Uint32 // code of each answer, which may be later than the call
	failing := func() error { return grpcstatus.Error(codes.Code(answer.Load()), "made up") }
	podresourcestest.Kubelet{Pods: func() (pods []*podresourcesapi.PodResources, err error) {
		for n := range 3 {
			pods = append(pods, podresourcestest.Pod("ns", fmt.Sprint("p", n), podresourcestest.Of(vf, fmt.Sprintf("0000:03:00.%d", n))))
		}
		return pods, failing()
	}, Plugins: func() ([]*podresourcesapi.ContainerDevices, error) {
		return podresourcestest.Of(vf, "0000:03:00.2"), failing()
	}}.Serve(t, socket)
	d := openDoor(t, socket)
	at := d.Addr().String()
	memory := podresources.Memory{Socket: at}
	held, err := memory.Ask(t.Context())
	difftest.Must(t, err)
	for _, c := range []call{
		{"devices of pods", func(ctx context.Context) (any, error) { return podresources.Ask(ctx, at) }},
		{"devices of plugins", func(ctx context.Context) (any, error) {
			return podresources.Advertised(ctx, at, vf, "0000:03:00.2")
		}},
		{"memory", func(ctx context.Context) (any, error) {
			given, err := memory.Ask(ctx)
			if !maps.Equal(given, held) {
				t.Errorf("the memory has lost devices: %v, %v", given, err)
			}
			return given, err
		}},
	} {
		c.try(t, d)
		for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
			ctx, cancel := context.WithTimeout(t.Context(), patience) // the client repeats some requests
			answer.Store(uint32(code))
			if got, err := c.ask(ctx); err == nil {
				t.Errorf("%s, %s: %v", c.name, code, got)
			}
			answer.Store(uint32(codes.OK))
			cancel()
		}
	}
	d.set(0, true)
	_, err = podresources.Ask(t.Context(), at) // the caller has no deadline
	difftest.Equal(t, grpcstatus.Code(err), codes.DeadlineExceeded)
}

// A kubelet that loses an answer registers the driver again. The driver is healthy only after the last step.
func TestRegistrationWhoseAnswerIsLostIsRepeated(t *testing.T) {
	t.Parallel()
	r := dratest.NewRig(t)
	k := r.StartKubelet(dratest.APIServer(nil), 0)
	d := openDoor(t, filepath.Join(r.Dir, dratest.Driver+"-reg.sock"))
	register := func(ctx context.Context, accepted bool) (any, error) {
		kubelet := registerapi.NewRegistrationClient(dratest.Dial(t, d.Addr().String()))
		info, err := kubelet.GetInfo(ctx, &registerapi.InfoRequest{})
		if err != nil {
			return nil, err
		}
		_, err = kubelet.NotifyRegistrationStatus(ctx, &registerapi.RegistrationStatus{PluginRegistered: accepted, Error: "made up"})
		return info.Name, err
	}
	d.set(0, false)
	_, err := register(t.Context(), true)
	difftest.Says(t, err, "")
	difftest.Says(t, k.Registered(), "has not registered")
	call{"registration", func(ctx context.Context) (any, error) { return register(ctx, true) }}.try(t, d)
	difftest.Must(t, k.Registered())
	_, _ = register(t.Context(), false)
	difftest.Says(t, k.Registered(), "made up")
}

// listed is a plugin that records the sandboxes that the runtime lists.
type listed struct{ got chan []string }

func (l listed) Configure(context.Context, string, string, string) (stub.EventMask, error) {
	return api.MustParseEventMask("RunPodSandbox"), nil
}

func (listed) RunPodSandbox(context.Context, *api.PodSandbox) error { return nil }

func (l listed) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	var names []string
	for _, p := range pods {
		names = append(names, p.GetId())
	}
	l.got <- names
	return nil, nil
}

// A runtime that fails while a plugin connects is tried again. Its list of sandboxes arrives whole or not at all.
func TestRuntimeThatFailsListsNoFewerSandboxes(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "nri")
	var pods []*api.PodSandbox
	var want []string
	for n := range 20 {
		want = append(want, fmt.Sprint("sandbox", n))
		pods = append(pods, &api.PodSandbox{Id: want[n], Name: "p", Namespace: "ns"})
	}
	nritest.Serve(t, socket, pods)
	d := openDoor(t, socket)
	connect := func(what string) {
		ctx, cancel := context.WithCancel(t.Context())
		l, connected, ended := listed{make(chan []string, 100)}, make(chan bool, 100), make(chan bool)
		go func() {
			defer close(ended)
			nri.Plugin{Handler: l, Name: "test", Index: "10", Socket: d.Addr().String(), Handshake: 3 * patience,
				Connected: func(away error) { connected <- away == nil }, Log: slog.New(slog.DiscardHandler)}.Serve(ctx)
		}()
		<-connected // or not
		if what != "" {
			d.set(-1, false)
		}
		difftest.Same(t, what, <-l.got, want)
		cancel()
		<-ended
		for len(l.got) > 0 {
			difftest.Same(t, what, <-l.got, want)
		}
	}
	connect("")
	d.eachFault(d.set(-1, false), connect)
}
