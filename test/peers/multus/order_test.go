// Package multus_test checks the description of Multus in docs/injection.md.
package multus_test

import (
	"testing"

	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/kubeletclient"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/pkg/core/podresources/podresourcestest"
	"devinfo-cni.io/test/difftest"
)

// Each container has one device. So the second network gets the first container's.
func TestMultusSortsDevicesOfAllContainersOfPod(t *testing.T) {
	socket := t.TempDir() + "/kubelet.sock"
	podresourcestest.Kubelet{Pods: func() ([]*podresourcesapi.PodResources, error) {
		pod := podresourcestest.Pod("shop", "web", podresourcestest.Of("example.com/vf", "0000:03:00.5"))
		pod.Containers = append(pod.Containers, &podresourcesapi.ContainerResources{Devices: podresourcestest.Of("example.com/vf", "0000:03:00.2")})
		return []*podresourcesapi.PodResources{pod}, nil
	}}.Serve(t, socket)
	client, err := kubeletclient.GetResourceClient(socket)
	difftest.Must(t, err)
	resources, err := client.GetPodResourceMap(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}})
	difftest.Must(t, err)
	difftest.Equal(t, resources["example.com/vf"].DeviceIDs, []string{"0000:03:00.2", "0000:03:00.5"})
}
