package inject_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// The pod of the captured host. Its net1 is a VF with RDMA, and its net2 is a macvlan.
const (
	netns   = "/run/netns/pod"
	sandbox = "90a65a834174763bdb4f1ec0dffca5b2a05a81b5c4b4bee0b1fbb6b91bfb7ec6"
	podUID  = "6e0c2d4f-58a1-4a0e-9d2e-2f7f6f1f0c11"
	vfInfo  = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.3","pf-pci-address":"0000:3b:00.0"},"vendor":"kept"}`
)

// rig is a node with an agent. It has the devices of the captured host mlx5-legacy and directories of its
// own.
type rig struct {
	t       testing.TB
	dir     string
	log     difftest.Log
	node    config.Node
	journal *journal.Journal
	options inject.Config
	looks   atomic.Int64 // number of refreshes
	kept    atomic.Int64 // sandboxes after the last one
	waited  atomic.Int64 // nanoseconds
	broken  atomic.Bool  // the settings cannot be read

	mu       sync.Mutex
	gone     map[string]bool // network namespaces that no longer exist
	netnsErr error           // of the look for one
	calls    []string        // calls of the Metrics methods
}

func newRig(t testing.TB) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, dir: dir, gone: map[string]bool{}}
	r.node = config.Node{DeviceInfoDir: dir + "/infos", StateDir: dir + "/state", SocketDirs: []string{dir + "/sockets"}}
	r.journal = journal.Open(r.node.StateDir, "boot")
	for _, name := range []string{"infiniband/uverbs3", "infiniband/uverbs4", "infiniband/rdma_cm"} { // links, because ordinary users cannot create device nodes
		difftest.Must(t, os.MkdirAll(filepath.Dir(dir+"/host/dev/"+name), 0o755))
		difftest.Must(t, os.Symlink("/dev/null", dir+"/host/dev/"+name))
	}
	r.options = inject.Config{
		Socket: dir + "/nri", Index: "60", StageDir: dir + "/stage", HostRoot: dir + "/host", BootID: "boot", MissingInfo: inject.Allow, Interval: 5 * time.Millisecond,
		Node: func() (config.Node, error) {
			if r.broken.Load() {
				return r.node, syscall.EIO
			}
			return r.node, nil
		},
		Finder:    checktest.Finder(t, capturetest.Load(t, "mlx5-legacy")),
		NetnsGone: func(path string) (bool, error) { r.mu.Lock(); defer r.mu.Unlock(); return r.gone[path], r.netnsErr },
		Connected: func(error) {}, Metrics: r, Log: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	r.journal.NetnsGone = r.options.NetnsGone
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.logged())
		}
	})
	return r
}

// logged returns the log so far.
func (r *rig) logged() string { return r.log.String() }

func (r *rig) record(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, strings.TrimSpace(what))
}

func (r *rig) Decided(a inject.Decision, why inject.Reason, _ time.Duration) {
	r.record(fmt.Sprint(a, " ", why))
}
func (r *rig) Disagrees(how inject.Disagreement) { r.record("disagrees " + string(how)) }
func (r *rig) Withheld(why inject.Withheld)      { r.record("withheld " + string(why)) }
func (r *rig) Waited(took time.Duration)         { r.waited.Add(int64(took)) }
func (r *rig) Staged(sandboxes int)              { r.kept.Store(int64(sandboxes)); r.looks.Add(1) }

// decisions returns the calls of the Metrics methods so far.
func (r *rig) decisions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}

func (r *rig) expect(want ...string) {
	r.t.Helper()
	difftest.Equal(r.t, r.decisions(), want)
}

// make calls CreateContainer for a container that must not be rejected.
func (r *rig) make(a *inject.Plugin, p *api.PodSandbox, c *api.Container) *api.ContainerAdjustment {
	r.t.Helper()
	got, _, err := a.CreateContainer(r.t.Context(), p, c)
	difftest.Must(r.t, err)
	return got
}

func (r *rig) agent() *inject.Plugin { return inject.New(r.options) }

// attach records an attachment like ADD. If info is "", it has no device-info file.
func (r *rig) attach(network, id, ifName, info string, edits ...func(*journal.Entry)) {
	r.t.Helper()
	file := network + "-" + id + "_" + ifName
	e := &journal.Entry{
		Key: journal.Key{Network: network, ContainerID: id, IfName: ifName}, Netns: netns, Complete: true,
		Pod: podUID, File: file, Dir: r.node.DeviceInfoDir, Wrote: info != "",
	}
	if parsed, err := devinfo.Parse([]byte(info)); err == nil { // the pod has a lease of the VF
		e.Leases = []journal.DeviceLease{{ID: sysfs.ID("pci", discovery.Identity(parsed)), Mode: journal.Exclusive}}
	}
	for _, edit := range edits {
		edit(e)
	}
	former, err := r.journal.Lock(r.t.Context(), e.Key, 0)
	difftest.Must(r.t, err)
	difftest.Must(r.t, r.journal.Put(e, former))
	e.Unlock()
	if info != "" {
		difftest.Must(r.t, store.Open(r.node.DeviceInfoDir).Write(file, []byte(info)))
	}
}

// detach removes an attachment like DEL.
func (r *rig) detach(network, id, ifName string) {
	r.t.Helper()
	e, err := r.journal.Get(journal.Key{Network: network, ContainerID: id, IfName: ifName})
	difftest.Must(r.t, err)
	difftest.Must(r.t, store.Open(r.node.DeviceInfoDir).Remove(e.File))
	difftest.Must(r.t, r.journal.Forget(e))
}

func pod(annotations ...string) *api.PodSandbox {
	p := &api.PodSandbox{
		Id: sandbox, Uid: podUID, Name: "web", Namespace: "shop", Annotations: map[string]string{},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "pid"}, {Type: "network", Path: netns}}},
	}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, "=")
		p.Annotations[key] = value
	}
	return p
}

func container() *api.Container {
	return &api.Container{Id: "c1", PodSandboxId: sandbox, Name: "app", Env: []string{"PATH=/bin"}, Linux: &api.LinuxContainer{}}
}

// text lists an adjustment, one item in each line, without the rig's directory in paths.
func (r *rig) text(a *api.ContainerAdjustment) string {
	var lines []string
	for _, m := range a.GetMounts() {
		lines = append(lines, fmt.Sprintf("%s on %s %s %s", m.Source, m.Destination, m.Type, strings.Join(m.Options, ",")))
	}
	for _, e := range a.GetEnv() {
		lines = append(lines, e.Key+"="+e.Value)
	}
	for _, d := range a.GetLinux().GetDevices() {
		lines = append(lines, fmt.Sprintf("%s %s %d:%d %04o %d:%d", d.Path, d.Type, d.Major, d.Minor, d.FileMode.GetValue(), d.Uid.GetValue(), d.Gid.GetValue()))
	}
	return strings.ReplaceAll(strings.Join(lines, "\n"), r.dir, "")
}

// staged returns the staged files of a sandbox by name.
func (r *rig) staged(id string) map[string]string {
	r.t.Helper()
	dir := filepath.Join(r.options.StageDir, id, "devinfo")
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil
	}
	difftest.Must(r.t, err)
	files := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if !os.IsNotExist(err) { // removed after ReadDir
			difftest.Must(r.t, err)
			files[e.Name()] = string(text)
		}
	}
	return files
}

func (r *rig) names(id string) []string { return slices.Sorted(maps.Keys(r.staged(id))) }

// left returns the entries of the stage directory: sandboxes and temporary files.
func (r *rig) left() []string { return difftest.Names(r.t, r.options.StageDir) }

// containerRuntime simulates a container runtime with NRI.
type containerRuntime struct {
	*adaptation.Adaptation
	r *rig
}

// serve starts a container runtime that lists no sandboxes.
func (r *rig) serve(options ...adaptation.Option) containerRuntime {
	r.t.Helper()
	return containerRuntime{nritest.Serve(r.t, r.dir+"/nri", nil, options...), r}
}

// running is serve with a connected plugin.
func (r *rig) running() containerRuntime {
	r.t.Helper()
	nri := r.serve()
	nri.run()
	return nri
}

// run starts the plugin and waits until the runtime sends it requests.
func (n containerRuntime) run() (stop func()) {
	r := n.r
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	agent := r.agent()
	go func() { done <- agent.Run(ctx) }()
	difftest.Eventually(r.t, "connected", func() bool {
		_, err := n.create(&api.PodSandbox{Id: "on-the-host"}, container())
		return err == nil && len(r.decisions()) > 0
	})
	r.mu.Lock()
	r.calls = nil
	r.mu.Unlock()
	stop = sync.OnceFunc(func() {
		cancel()
		difftest.Is(r.t, <-done, nil)
	})
	r.t.Cleanup(stop)
	return stop
}

func (n containerRuntime) create(p *api.PodSandbox, c *api.Container) (*api.ContainerAdjustment, error) {
	n.r.t.Helper()
	answer, err := n.CreateContainer(n.r.t.Context(), &adaptation.CreateContainerRequest{Pod: p, Container: c})
	return answer.GetAdjust(), err
}

// make is create for a container that must not be rejected.
func (n containerRuntime) make(p *api.PodSandbox, c *api.Container) *api.ContainerAdjustment {
	n.r.t.Helper()
	got, err := n.create(p, c)
	difftest.Must(n.r.t, err)
	return got
}

func compact(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	difftest.Must(t, json.Compact(&b, []byte(text)))
	return b.String()
}
