//go:build vm

package vm_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	runtimespec "github.com/opencontainers/runtime-spec/specs-go"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// A draPod is a pod with a claim of one device, of its own.
type draPod struct {
	*draNode
	name    string          // also the claim's
	sandbox *api.PodSandbox // the latest; its ID is the name of its network namespace, too
	count   int             // of sandboxes
	devices []string        // CDI devices that the kubelet gives to the containers
}

const podNamespace = "ns"

// podWith makes a pod with a claim, to which it allocates the device as the scheduler does:
// if it is published, and by the configuration of its class; "" = none.
func (n *draNode) podWith(name, device, parameters string) *draPod {
	n.t.Helper()
	n.published(device)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: podNamespace, Name: name, UID: types.UID("uid-claim-" + name)}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: "nic", Exactly: &resourceapi.ExactDeviceRequest{
		DeviceClassName: "c", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}}}
	allocation := &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: "nic", Driver: driverName, Pool: nodeName, Device: device}},
	}}
	if parameters != "" {
		raw := `{"apiVersion": "cni.networking.x-k8s.io/v1alpha1", "kind": "CNIConfig", "ifName": "net1", ` + parameters + `}`
		allocation.Devices.Config = []resourceapi.DeviceAllocationConfiguration{{
			Source: resourceapi.AllocationConfigSourceClass, Requests: []string{"nic"},
			DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{
				Driver: driverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}}},
		}}
	}
	claim.Status.Allocation = allocation
	claim.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: name, UID: types.UID("uid-" + name)}}
	if _, err := n.ResourceV1().ResourceClaims(podNamespace).Create(n.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		n.t.Fatal(err)
	}
	return &draPod{draNode: n, name: name}
}

// draNetwork is a class's configuration of these plugins.
func draNetwork(plugins string) string {
	return `"config": {"cniVersion": "1.1.0", "name": "blue", "plugins": [` + plugins + `]}`
}

func (p *draPod) claim() *drapb.Claim {
	return &drapb.Claim{Namespace: podNamespace, Name: p.name, Uid: "uid-claim-" + p.name}
}

// tryPrepare is the kubelet's NodePrepareResources.
func (p *draPod) tryPrepare() error {
	plugin, hangUp := p.plugin()
	defer hangUp()
	answer, err := plugin.NodePrepareResources(p.t.Context(), &drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{p.claim()}})
	if err != nil {
		return err
	}
	result := answer.Claims[p.claim().Uid]
	if result.GetError() != "" {
		return errors.New(result.Error)
	}
	p.devices = nil
	for _, d := range result.Devices {
		p.devices = append(p.devices, d.CdiDeviceIds...)
	}
	return nil
}

func (p *draPod) tryUnprepare() error {
	plugin, hangUp := p.plugin()
	defer hangUp()
	answer, err := plugin.NodeUnprepareResources(p.t.Context(), &drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{p.claim()}})
	if err == nil && answer.Claims[p.claim().Uid].GetError() != "" {
		err = errors.New(answer.Claims[p.claim().Uid].Error)
	}
	return err
}

// newSandbox is one that the runtime has yet to run, with a network namespace.
func (p *draPod) newSandbox() {
	p.t.Helper()
	p.count++
	id := fmt.Sprint(p.name, "-", p.count)
	run(p.t, "ip", "netns", "add", id)
	p.sandbox = &api.PodSandbox{Id: id, Name: p.name, Namespace: podNamespace, Uid: "uid-" + p.name,
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: "/run/netns/" + id}}}}
	p.t.Cleanup(p.dropNetns)
}

// runSandbox has the runtime run it.
func (p *draPod) runSandbox() error {
	p.running[p.sandbox.Id] = p.sandbox
	err := p.runtime.RunPodSandbox(p.t.Context(), &adaptation.RunPodSandboxRequest{Pod: p.sandbox})
	if err != nil {
		delete(p.running, p.sandbox.Id)
	}
	return err
}

// dropNetns removes the network namespace, if it is there; hardware in it goes back to the
// machine.
func (p *draPod) dropNetns() {
	if exists("/run/netns/" + p.sandbox.Id) {
		run(p.t, "ip", "netns", "del", p.sandbox.Id)
	}
}

// tryContainer makes a container as containerd does: CDI devices are resolved, and their hooks
// run.
func (p *draPod) tryContainer() (*runtimespec.Spec, error) {
	cache, err := cdi.NewCache(cdi.WithSpecDirs(cdiDir), cdi.WithAutoRefresh(false))
	if err != nil {
		return nil, err
	}
	spec := &runtimespec.Spec{Process: &runtimespec.Process{}, Linux: &runtimespec.Linux{}}
	if unresolved, err := cache.InjectDevices(spec, p.devices...); err != nil {
		return nil, fmt.Errorf("%w: %s", err, unresolved)
	}
	if spec.Hooks == nil { // of what has no network
		return spec, nil
	}
	for _, hook := range spec.Hooks.CreateRuntime { // which cni-dra-gate compares
		if hook.Args[1] != "/run/netns/"+p.sandbox.Id {
			return nil, errors.New(hook.Args[2])
		}
	}
	return spec, nil
}

// stop and remove are what the runtime tells of a sandbox that ends; its network namespace
// goes in between, as with containerd. What it is told in return it only logs.
func (p *draPod) stop() {
	p.t.Helper()
	delete(p.running, p.sandbox.Id)
	if err := p.runtime.StopPodSandbox(context.Background(), &adaptation.StopPodSandboxRequest{Pod: p.sandbox}); err != nil {
		p.t.Log("StopPodSandbox:", err)
	}
}

func (p *draPod) remove() {
	p.t.Helper()
	p.dropNetns()
	if err := p.runtime.RemovePodSandbox(context.Background(), &adaptation.RemovePodSandboxRequest{Pod: p.sandbox}); err != nil {
		p.t.Log("RemovePodSandbox:", err)
	}
}

// prepare, up, container and unprepare want success.
func (p *draPod) prepare() { p.t.Helper(); ok(p.t, "Prepare", p.tryPrepare()) }

func (p *draPod) up() {
	p.t.Helper()
	p.newSandbox()
	ok(p.t, "RunPodSandbox", p.runSandbox())
}

// begin gives the pod its network.
func (p *draPod) begin() {
	p.t.Helper()
	p.prepare()
	p.up()
}

// end takes the pod away.
func (p *draPod) end() {
	p.t.Helper()
	p.stop()
	p.remove()
	p.unprepare()
}

func (p *draPod) container() *runtimespec.Spec {
	p.t.Helper()
	spec, err := p.tryContainer()
	ok(p.t, "CreateContainer", err)
	return spec
}

// unprepare repeats it as the kubelet does, for DELs may have to be repeated.
func (p *draPod) unprepare() {
	p.t.Helper()
	var err error
	for end := time.Now().Add(patient); time.Now().Before(end); pause() {
		if err = p.tryUnprepare(); err == nil {
			return
		}
	}
	p.t.Fatalf("Unprepare: %v", err)
}

// nodes are the paths of the device nodes that a container gets.
func nodes(spec *runtimespec.Spec) string {
	var list []string
	for _, d := range spec.Linux.Devices {
		list = append(list, d.Path)
	}
	return strings.Join(list, " ")
}

// mounted reads the file that a container has at a path.
func mounted(t *testing.T, spec *runtimespec.Spec, path string) string {
	t.Helper()
	for _, m := range spec.Mounts {
		if m.Destination == path {
			return read(t, m.Source)
		}
		if rest, below := strings.CutPrefix(path, m.Destination+"/"); below {
			return read(t, filepath.Join(m.Source, rest))
		}
	}
	var there []string
	for _, m := range spec.Mounts {
		there = append(there, m.Destination)
	}
	t.Fatalf("the container has no %s, only %s", path, there)
	return ""
}

// environment gives a variable of a container.
func environment(spec *runtimespec.Spec, name string) string {
	for _, e := range spec.Process.Env {
		if value, found := strings.CutPrefix(e, name+"="); found {
			return value
		}
	}
	return ""
}
