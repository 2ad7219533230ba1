// Package multus_test checks what docs/injection.md says of Multus. The module also has its
// executable, which other tests build.
package multus_test

import (
	"context"
	"net"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"gopkg.in/k8snetworkplumbingwg/multus-cni.v4/pkg/kubeletclient"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet has given each of a pod's containers one device.
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

// The first container's device is then the second network's.
func TestDevicesAreSortedAcrossTheContainersOfAPod(t *testing.T) {
	socket := t.TempDir() + "/kubelet.sock"
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, kubelet{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	client, err := kubeletclient.GetResourceClient(socket)
	if err != nil {
		t.Fatal(err)
	}
	resources, err := client.GetPodResourceMap(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := resources["example.com/vf"].DeviceIDs; !slices.Equal(got, []string{"0000:03:00.2", "0000:03:00.5"}) {
		t.Errorf("got %q", got)
	}
}
