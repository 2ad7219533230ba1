// Package multus_test checks the description of Multus in docs/injection.md.
package multus_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/kubeletclient"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/test/difftest"
)

// kubelet reports one device for each of a pod's containers.
type kubelet struct {
	podresourcesapi.PodResourcesListerServer
}

func (kubelet) List(context.Context, *podresourcesapi.ListPodResourcesRequest) (*podresourcesapi.ListPodResourcesResponse, error) {
	pod := &podresourcesapi.PodResources{Name: "web", Namespace: "shop"}
	for _, device := range []string{"0000:03:00.5", "0000:03:00.2"} {
		pod.Containers = append(pod.Containers, &podresourcesapi.ContainerResources{
			Name: device, Devices: []*podresourcesapi.ContainerDevices{{ResourceName: "example.com/vf", DeviceIds: []string{device}}},
		})
	}
	return &podresourcesapi.ListPodResourcesResponse{PodResources: []*podresourcesapi.PodResources{pod}}, nil
}

// So the second network gets the first container's device.
func TestMultusSortsDevicesOfAllContainersOfPod(t *testing.T) {
	socket := t.TempDir() + "/kubelet.sock"
	listener, err := net.Listen("unix", socket)
	difftest.Must(t, err)
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, kubelet{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, err := kubeletclient.GetResourceClient(socket)
	difftest.Must(t, err)
	resources, err := client.GetPodResourceMap(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}})
	difftest.Must(t, err)
	difftest.Equal(t, resources["example.com/vf"].DeviceIDs, []string{"0000:03:00.2", "0000:03:00.5"})
}
