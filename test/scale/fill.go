package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/cluster"
)

const (
	driver      = "cni.dra.networking.x-k8s.io"
	podsOfSpace = 300 // pods per namespace
	podsOfNode  = 15
)

func node(pod int) string  { return fmt.Sprintf("node-%04d", pod/podsOfNode) }
func space(pod int) string { return fmt.Sprintf("team-%03d", pod/podsOfSpace) }
func name(pod int) string  { return fmt.Sprintf("dpdk-%05d", pod) }

// claimed reports whether a pod's second attachment uses a claim.
func claimed(pod int) bool { return pod%3 == 2 }

// vf returns the PCI address of an attachment's VF.
func vf(pod, attachment int) string {
	n := pod%podsOfNode*2 + attachment
	return fmt.Sprintf("0000:3b:%02x.%d", 2+n/8, n%8)
}

func mac(pod, attachment int) string {
	n := 2*pod + attachment
	return fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)
}

// fill creates the namespaces, pods and claims.
func fill(ctx context.Context, client kubernetes.Interface, pods int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for n := 0; n < pods; n += podsOfSpace {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space(n)}}
		if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	workqueue.ParallelizeUntil(ctx, 16, pods, func(n int) {
		if err := attach(ctx, client, n); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

// attach creates a pod with two attachments, and its claim if claimed.
func attach(ctx context.Context, client kubernetes.Interface, n int) error {
	pod, err := client.CoreV1().Pods(space(n)).Create(ctx, pod(n), metav1.CreateOptions{})
	if err != nil || !claimed(n) {
		return err
	}
	wanted := claim(n, pod)
	made, err := client.ResourceV1().ResourceClaims(pod.Namespace).Create(ctx, wanted, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status = wanted.Status
	_, err = client.ResourceV1().ResourceClaims(pod.Namespace).UpdateStatus(ctx, made, metav1.UpdateOptions{})
	return err
}

// pod returns a pod of 8 KB, like those of Deployments.
func pod(n int) *corev1.Pod {
	status := []string{`{"name": "cbr0", "interface": "eth0", "ips": ["10.128.0.9"], "default": true, "dns": {}}`}
	for a := range 2 {
		if a == 0 || !claimed(n) {
			status = append(status, fmt.Sprintf(`{"name": %q, "interface": "net%d", "mac": %q, "dns": {}, "device-info": {"type": "pci", "version": "1.1.0", "pci": {
				"pci-address": %q, "pf-pci-address": "0000:3b:00.0", "rdma-device": "mlx5_%d", "representor-device": "eth%d"}}}`,
				space(n)+"/sriov", a+1, mac(n, a), vf(n, a), n, n))
		}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: space(n), Name: name(n), UID: types.UID(name(n)), // the API server replaces the UID
			Annotations: map[string]string{cluster.StatusAnnotation: "[" + strings.Join(status, ",\n") + "]"},
		},
		Spec: corev1.PodSpec{NodeName: node(n)},
	}
	for _, name := range []string{"dpdk", "exporter"} {
		container := corev1.Container{Name: name, Image: "registry.example.com/net/" + name + ":v1.2.3"}
		for n := range 40 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", n), Value: "a value that the application reads when it starts"})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	if claimed(n) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "net2", ResourceClaimName: &p.Name}}
	}
	return p
}

// claim returns the claim of a pod's second attachment, with the fields that the scheduler and cni-dra-driver set.
func claim(n int, pod *corev1.Pod) *resourceapi.ResourceClaim {
	const request, device = "vf", "vf1"
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	c.Spec.Devices.Requests = []resourceapi.DeviceRequest{{Name: request, Exactly: &resourceapi.ExactDeviceRequest{DeviceClassName: "vf.example.com"}}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: pod.Name, UID: pod.UID}}
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{
		Results: []resourceapi.DeviceRequestAllocationResult{{Request: request, Driver: driver, Pool: node(n), Device: device}},
	}}
	c.Status.Devices = []resourceapi.AllocatedDeviceStatus{{
		Driver: driver, Pool: node(n), Device: device,
		NetworkData: &resourceapi.NetworkDeviceData{InterfaceName: "net2", HardwareAddress: mac(n, 1), IPs: []string{"10.9.0.2/24"}},
		Data: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"cniVersion": "1.1.0", %q: {"type": "pci", "device": %q, "pf": "0000:3b:00.0", "rdma": "mlx5_%d"}}`,
			view.Key, vf(n, 1), n)},
	}}
	return c
}
