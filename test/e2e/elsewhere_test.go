//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// elsewhere is a second node, for the scheduler: there is no kubelet. Its slices are what the
// command inventory prints of a captured host.
func elsewhere(t *testing.T, name string, devices [][]resourceapi.Device) {
	t.Helper()
	room := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("100")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
	}}
	if _, err := cluster.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for _, d := range devices {
		made, err := cluster.client.ResourceV1().ResourceSlices().Create(t.Context(), sliceOf(name, d, len(devices)), metav1.CreateOptions{})
		must(t, err)
		t.Cleanup(func() {
			if err := cluster.client.ResourceV1().ResourceSlices().Delete(context.Background(), made.Name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// sliceOf is one of that many slices of a node.
func sliceOf(node string, devices []resourceapi.Device, count int) *resourceapi.ResourceSlice {
	return &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{GenerateName: node + "-"}, Spec: resourceapi.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: resourceapi.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: int64(count)}, Devices: devices,
	}}
}

// printed are the devices of slices that the command inventory prints.
func printed(t *testing.T, host, rules string) (list [][]resourceapi.Device) {
	t.Helper()
	out, err := exec.Command(filepath.Join(root, "bin/cni-dra-driver"), "inventory", "--config", rules, "--host", host, "-o", "json").Output()
	must(t, err)
	var all struct {
		Slices []struct{ Devices []resourceapi.Device }
	}
	must(t, json.Unmarshal(out, &all))
	for _, s := range all.Slices {
		list = append(list, s.Devices)
	}
	return list
}

// anywhere lets a pod go to a node that nothing has made ready.
func anywhere(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	return pod
}

// forced deletes a pod without waiting for its kubelet.
func (s *space) forced(pod string) {
	now := int64(0)
	if err := cluster.client.CoreV1().Pods(s.name).Delete(context.Background(), pod, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		s.Error(err)
	}
}
