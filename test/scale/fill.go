package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"devinfo-cni.io/pkg/dra"
	"devinfo-cni.io/pkg/dra/metadata"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/inventory"
)

const (
	driver      = "cni.dra.networking.x-k8s.io"
	podsOfSpace = 300 // pods of a namespace
)

// A fleet is what the API server is filled with.
type fleet struct{ nodes, vfs, pods, claims int }

func (f *fleet) check() error {
	if most := 2 * (1 + (f.pods-1)/f.nodes); f.claims > f.pods || f.vfs < most {
		return fmt.Errorf("-pods %d on -nodes %d have at most so many claims (-claims %d), and take %d VFs of a node (-vfs %d)", f.pods, f.nodes, f.claims, most, f.vfs)
	}
	return nil
}

func nodeName(n int) string           { return fmt.Sprintf("node-%04d", n) }
func (f *fleet) node(pod int) string  { return nodeName(pod % f.nodes) }
func (f *fleet) space(pod int) string { return fmt.Sprintf("team-%03d", pod/podsOfSpace) }
func (f *fleet) name(pod int) string  { return fmt.Sprintf("dpdk-%05d", pod) }

// claimed says that the second attachment of a pod is by a claim: of every third pod, where a
// third of them are.
func (f *fleet) claimed(pod int) bool { return (pod+1)*f.claims/f.pods > pod*f.claims/f.pods }

// vf is the VF of an attachment.
func (f *fleet) vf(pod, attachment int) int { return pod/f.nodes*2 + attachment }

func (f *fleet) mac(pod, attachment int) string {
	n := 2*pod + attachment
	return fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
}

// fill makes all objects.
func (f *fleet) fill(ctx context.Context, client kubernetes.Interface) error {
	offered, err := f.offered()
	if err != nil {
		return err
	}
	for _, step := range []struct {
		n    int
		make func(ctx context.Context, n int) error
	}{
		{1 + (f.pods-1)/podsOfSpace, func(ctx context.Context, n int) error {
			_, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.space(n * podsOfSpace)}}, metav1.CreateOptions{})
			return err
		}},
		{f.nodes, func(ctx context.Context, n int) error { return publish(ctx, client, nodeName(n), offered) }},
		{f.pods, func(ctx context.Context, n int) error { return f.attach(ctx, client, n) }},
	} {
		if err := parallel(ctx, step.n, step.make); err != nil {
			return err
		}
	}
	return nil
}

// parallel calls f with the numbers below n, some at a time, until one fails.
func parallel(ctx context.Context, n int, f func(ctx context.Context, n int) error) error {
	const workers = 16
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < n && ctx.Err() == nil; i = int(next.Add(1) - 1) {
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// offered are the slices of each node, as cni-dra-driver makes them.
func (f *fleet) offered() ([]inventory.Slice, error) {
	host, err := inventory.Captured(hosttxttest.ManyVFs(f.vfs))
	if err != nil {
		return nil, err
	}
	devices, _, err := inventory.Read(host)
	if err != nil {
		return nil, err
	}
	rules, err := inventory.ParseRules([]byte("devices: [{pfNames: [ens1f0np0], as: exclusive}]"))
	if err != nil {
		return nil, err
	}
	own := inventory.Slices(inventory.Decide(devices, rules, inventory.Situation{Driver: driver, Sharing: true}), nil, nil)
	return append([]inventory.Slice{{Devices: dra.Shared(0)}}, own...), nil
}

// publish makes a node and its slices.
func publish(ctx context.Context, client kubernetes.Interface, node string, list []inventory.Slice) error {
	made, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for _, s := range list {
		slice := &resourceapi.ResourceSlice{
			ObjectMeta: metav1.ObjectMeta{
				GenerateName:    node + "-" + driver + "-",
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node, UID: made.UID, Controller: new(true)}},
			},
			Spec: resourceapi.ResourceSliceSpec{
				Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(len(list))},
				Devices: s.Devices,
			},
		}
		if _, err := client.ResourceV1().ResourceSlices().Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// attach makes a pod that runs, and its claim.
func (f *fleet) attach(ctx context.Context, client kubernetes.Interface, n int) error {
	wanted, err := f.pod(n)
	if err != nil {
		return err
	}
	status := wanted.Status
	pods := client.CoreV1().Pods(wanted.Namespace)
	pod, err := pods.Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if f.claimed(n) {
		claim, err := f.claim(ctx, client, n, pod)
		if err != nil {
			return err
		}
		status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "net2", ResourceClaimName: &claim.Name}}
	}
	pod.Status = status
	_, err = pods.UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// claim makes the claim of a pod's second attachment, as its template, the scheduler and the
// driver have it.
func (f *fleet) claim(ctx context.Context, client kubernetes.Interface, n int, pod *corev1.Pod) (*resourceapi.ResourceClaim, error) {
	const class, request = "vf.example.com", "vf"
	address, node := hosttxttest.VF(f.vf(n, 1)), f.node(n)
	claim := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		GenerateName: pod.Name + "-net2-", Annotations: map[string]string{"resource.kubernetes.io/pod-claim-name": "net2"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}},
	}}
	claim.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: class}}}
	claims := client.ResourceV1().ResourceClaims(pod.Namespace)
	claim, err := claims.Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	netns := "/var/run/netns/cni-" + string(pod.UID)
	result := fmt.Appendf(nil, `{"cniVersion":"1.1.0","interfaces":[{"name":"net2","mac":%q,"mtu":9000,"sandbox":%q,"pciID":%q}],"ips":[{"interface":0,"address":"10.%d.%d.%d/8"}],"dns":{}}`,
		f.mac(n, 1), netns, address, n>>16, n>>8&0xff, n&0xff)
	network, _, err := metadata.NetworkData(result, "net2", netns)
	if err != nil {
		return nil, err
	}
	of := metadata.Device{Driver: driver, Pool: node, Name: deviceOf(address), Since: metav1.Now()}
	device, left := of.Attached(result, network)
	if left != nil {
		return nil, fmt.Errorf("the claim's status: %q", left)
	}
	claim.Status = resourceapi.ResourceClaimStatus{
		ReservedFor: []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}},
		Devices:     []resourceapi.AllocatedDeviceStatus{device},
		Allocation:  &resourceapi.AllocationResult{NodeSelector: nodeSelector(node)},
	}
	allocated := &claim.Status.Allocation.Devices
	allocated.Results = []resourceapi.DeviceRequestAllocationResult{{Request: request, Driver: driver, Pool: node, Device: of.Name}}
	allocated.Config = []resourceapi.DeviceAllocationConfiguration{{
		Source: resourceapi.AllocationConfigSourceClass,
		DeviceConfiguration: resourceapi.DeviceConfiguration{Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: driver, Parameters: runtime.RawExtension{Raw: []byte(
			`{"apiVersion":"cni.networking.x-k8s.io/v1alpha1","kind":"CNIConfig","ifName":"net2","config":{"cniVersion":"1.1.0","name":"blue","plugins":[{"type":"sriov","vlan":100,"ipam":{"type":"whereabouts","range":"10.0.0.0/8"}}]}}`)}}},
	}}
	return claims.UpdateStatus(ctx, claim, metav1.UpdateOptions{})
}

// networkStatus is Multus' annotation.
func (f *fleet) networkStatus(n int) (string, error) {
	list := []map[string]any{{"name": "cbr0", "interface": "eth0", "ips": []string{fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&0xff, n&0xff)}, "mac": "0a:58:0a:80:00:01", "default": true, "dns": map[string]any{}}}
	for a := range 2 {
		if a == 1 && f.claimed(n) {
			break
		}
		vf := f.vf(n, a)
		list = append(list, map[string]any{
			"name": f.space(n) + "/sriov", "interface": fmt.Sprint("net", a+1), "mac": f.mac(n, a), "dns": map[string]any{},
			"device-info": map[string]any{"type": "pci", "version": "1.1.0", "pci": map[string]string{
				"pci-address": hosttxttest.VF(vf), "pf-pci-address": "0000:3b:00.0", "rdma-device": fmt.Sprint("mlx5_", vf+2), "representor-device": fmt.Sprint("eth", vf),
			}},
		})
	}
	text, err := json.MarshalIndent(list, "", "    ")
	return string(text), err
}
