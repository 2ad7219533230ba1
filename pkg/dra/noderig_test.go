package dra_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/nri/pkg/api"
	gocmp "github.com/google/go-cmp/cmp"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

const ownRules = `devices:
- select: device.attributes["devinfo-cni.io"].kind == "vf" && device.attributes["devinfo-cni.io"].vfIndex == 3
  sharing: exclusive
  resourceName: example.com/vf
- select: device.attributes["devinfo-cni.io"].kind in ["vf", "sf"]
  sharing: exclusive
  attributes: {physicalNetwork: blue}
- ifNames: [p0]
  sharing: shared
  attachments: 7
`

const infinibandRules = `devices:
- select: device.attributes["devinfo-cni.io"].linkType == "infiniband"
  sharing: exclusive
  resourceName: example.com/ib
`

// node is a captured host whose devices an agent offers. Tests change it.
type node struct {
	t           testing.TB
	mu          sync.Mutex
	text        []byte
	rules       string // "" = ownRules
	others      map[string]string
	othersError error
	events      chan struct{}
}

func newNode(t testing.TB, name string) *node {
	t.Helper()
	return &node{t: t, text: capturetest.Text(t, name), events: make(chan struct{}, 1)}
}

func (n *node) inventory() *devices.Inventory {
	of := inventoryOf(inventory.Host{}, cmp.Or(n.rules, ownRules))
	of.Host = n.host
	of.Events = func(context.Context) (<-chan struct{}, error) { return n.events, nil }
	of.Others = func(context.Context) (map[string]string, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.others, n.othersError
	}
	return of
}

// inventoryOf returns an inventory of a host that does not change.
func inventoryOf(host inventory.Host, rules string) *devices.Inventory {
	parsed, err := inventory.ParseRules([]byte(rules))
	check(err)
	return &devices.Inventory{
		Rules: parsed, Host: func() (inventory.Host, error) { return host, nil }, Times: inventory.Times{Settle: time.Millisecond, Poll: time.Hour},
		Events: func(context.Context) (<-chan struct{}, error) { return nil, nil },
		Others: func(context.Context) (map[string]string, error) { return nil, nil }, Waits: func() time.Duration { return 0 },
	}
}

func (n *node) lineage(device string) ([]sysfs.Object, error) {
	h, err := n.host()
	if err != nil {
		return nil, err
	}
	return h.Sys.Lineage(device)
}

func (n *node) host() (inventory.Host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	file, err := capturefile.Parse(n.text)
	if err != nil {
		return inventory.Host{}, err
	}
	return inventory.Captured(file)
}

func (n *node) finder() *discovery.Finder {
	file, err := capturefile.Parse(n.text)
	must(n.t, err)
	links, err := linkhost.New(file)
	must(n.t, err)
	return &discovery.Finder{Sys: sysfs.New(file.Sys()), Interfaces: links, Eswitches: links}
}

// change changes the node and sends an event.
func (n *node) change(f func()) {
	n.mu.Lock()
	f()
	n.mu.Unlock()
	n.events <- struct{}{}
}

// remove removes functions or interfaces from the node: see capturetest.Without.
func (n *node) remove(words ...string) { n.text = capturetest.Without(n.text, words...) }

// waitDevices waits until exactly these devices are published.
func waitDevices(t *testing.T, client *fake.Clientset, want ...string) (all map[string]resourceapi.Device) {
	t.Helper()
	waitUntil(t, func() string {
		all = map[string]resourceapi.Device{}
		list, err := client.ResourceV1().ResourceSlices().List(t.Context(), metav1.ListOptions{})
		must(t, err)
		for _, s := range list.Items {
			for _, d := range s.Spec.Devices {
				all[d.Name] = d
			}
		}
		return gocmp.Diff(want, slices.Sorted(maps.Keys(all)))
	})
	return all
}

const (
	vf0, vf2, vf3 = "pci-0000-03-00-2", "pci-0000-03-00-4", "pci-0000-03-00-5"
	sf4, sf7      = "auxx-mlx5-5fcore-2esf-2e4", "auxx-mlx5-5fcore-2esf-2e7"
	pf            = "pci-0000-03-00-0"
)

// offer makes the agent offer the devices of a captured host. Rules "" are ownRules.
func (r *rig) offer(host, rules string) *node {
	r.t.Helper()
	n := newNode(r.t, host)
	n.rules = rules
	r.options.Devices.Inventory, r.options.Devices.Finder = n.inventory(), n.finder()
	return n
}

// startOffering starts the rig's agent as a DRA plugin that offers the devices of a node.
func (r *rig) startOffering(client *fake.Clientset, n *node, p *plugins) *dra.Agent {
	r.t.Helper()
	r.options.Exec, r.plugins, r.options.DelMaxFailures = p, p, 2
	r.options.Devices.Inventory, r.options.Devices.Finder = n.inventory(), n.finder()
	r.startKubelet(client, 0)
	return r.agent
}

// attachment returns the first attachment on record.
func (r *rig) attachment(uid string) state.Attachment { return r.record(uid).Attachments[0] }

func (r *rig) record(uid string) state.Claim {
	r.t.Helper()
	var record state.Claim
	must(r.t, json.Unmarshal([]byte(difftest.Read(r.t, filepath.Join(r.options.StateDir, uid+".json"))), &record))
	return record
}

// multusEntry returns the journal entry of an ADD by Multus.
func multusEntry(pod, sandbox, netns string, leases ...journal.DeviceLease) *journal.Entry {
	return &journal.Entry{
		Key: journal.Key{Network: "sriov-net", ContainerID: sandbox, IfName: "net7"}, Netns: netns, Complete: true, Time: time.Now(),
		Args: "K8S_POD_NAMESPACE=ns;K8S_POD_NAME=" + pod, Pod: "uid-" + pod, Leases: leases,
	}
}

func exclusiveLease(id string) journal.DeviceLease {
	return journal.DeviceLease{ID: id, Mode: journal.Exclusive}
}

// isNetnsMissing reports whether a sandbox's network namespace does not exist.
func isNetnsMissing(netns string) (bool, error) {
	_, err := os.Stat(netns)
	return errors.Is(err, fs.ErrNotExist), nil
}

// recordMultus writes an entry to the journal.
func (r *rig) recordMultus(e *journal.Entry) {
	r.t.Helper()
	must(r.t, r.options.Devices.Journal.Record(e, nil))
	e.Unlock()
}

// netns returns the path of a sandbox's network namespace.
func (r *rig) netns(sandbox string) string { return filepath.Join(r.dir, "netns", sandbox) }

// prepareVF0 starts an agent with a journal and prepares a claim of vf0.
func (r *rig) prepareVF0() *dra.Agent {
	r.t.Helper()
	r.options.Devices.Journal = journalIn(r.dir, "boot1")
	r.offer("mlx5-switchdev", "")
	agent := r.start()
	r.prepare(ownClaim("u1", vf0, network(`{"type":"sriov"}`)))
	return agent
}

// useJournal is offer for an agent that grants device nodes and leases devices. It returns the journal.
func (r *rig) useJournal(host, rules string) *journal.Journal {
	r.options.Devices.Journal, r.options.Devices.Lineage = journalIn(r.dir, "boot1"), r.offer(host, rules).lineage
	r.options.Devices.Granter = &grant.Granter{Sys: r.options.Devices.Finder.Sys, Settings: config.Node{AllowedDevices: []string{"*"}}, Nodes: func(path string) (cdispec.DeviceNode, error) {
		return cdispec.DeviceNode{Path: path, Type: "c"}, nil
	}}
	return r.options.Devices.Journal
}

// holders returns the holders of a device.
func (r *rig) holders(id string) (list []string) {
	r.t.Helper()
	all, err := r.options.Devices.Journal.Holders(journal.OfDevice, id)
	must(r.t, err)
	for _, h := range all {
		list = append(list, h.Name())
	}
	return list
}

// expectHolders checks that a device has exactly these holders.
func (r *rig) expectHolders(id string, holders ...string) {
	r.t.Helper()
	difftest.Same(r.t, "holders of "+id, r.holders(id), holders)
}

// inBubble runs a test in a synctest bubble, where time advances when all goroutines wait. The plugins of the
// rig have no processes.
func inBubble(t *testing.T, test func(t *testing.T, r *rig, p *plugins)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, p := newRig(t), newPlugins()
		r.options.Exec, r.plugins = p, p
		r.options.Sweep, r.options.DelMinRetryTime = 0, 0 // the defaults
		r.runtimeWaits = 2 * time.Second
		test(t, r, p)
		if r.agent != nil {
			r.stop()
		}
	})
}

// onNode is inBubble with a started agent that offers devices, grants device nodes and leases devices.
func onNode(t *testing.T, test func(t *testing.T, r *rig, p *plugins)) {
	t.Helper()
	inBubble(t, func(t *testing.T, r *rig, p *plugins) {
		r.useJournal("mlx5-switchdev", "")
		r.start()
		test(t, r, p)
	})
}

// bubble returns a subtest that runs in a bubble.
func bubble(test func(t *testing.T, r *rig, p *plugins)) func(*testing.T) {
	return func(t *testing.T) { inBubble(t, test) }
}

// waitIdle waits until all goroutines wait. It first sleeps, because a goroutine may be waiting for a lock with
// a timer.
func waitIdle() {
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// runPod starts a sandbox within the runtime's time limit.
func (r *rig) runPod(sb *api.PodSandbox) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.runtimeWaits)
	defer cancel()
	return r.agent.RunPodSandbox(ctx, sb)
}

// endPod stops a sandbox, removes its network namespace, and removes the sandbox.
func (r *rig) endPod(sb *api.PodSandbox) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*time.Second)
	defer cancel()
	noError(r.t, r.agent.StopPodSandbox(ctx, sb))
	r.removeNetns(sb)
	noError(r.t, r.agent.RemovePodSandbox(ctx, sb))
}

// endAndUnprepare ends a pod and its claim, and checks that nothing is left.
func (r *rig) endAndUnprepare(sb *api.PodSandbox, uid string) {
	r.t.Helper()
	r.endPod(sb)
	r.unprepare(uid)
	r.expectNothing()
}

// unprepare repeats Unprepare like the kubelet, and returns how long it took to succeed.
func (r *rig) unprepare(uid string) time.Duration {
	r.t.Helper()
	began := time.Now()
	for time.Since(began) < time.Hour {
		ctx, cancel := context.WithTimeout(r.t.Context(), 45*time.Second)
		err := r.agent.Unprepare(ctx, uid)
		cancel()
		if err == nil {
			return time.Since(began)
		}
		time.Sleep(2 * time.Second)
	}
	r.t.Fatal("the claim cannot be unprepared")
	return 0
}
