// Package podresourcestest is a kubelet with the PodResources API, for tests of its clients.
package podresourcestest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/test/difftest"
)

// A Kubelet answers what its functions return.
type Kubelet struct {
	podresourcesapi.UnimplementedPodResourcesListerServer
	Pods    func() ([]*podresourcesapi.PodResources, error)
	Plugins func() ([]*podresourcesapi.ContainerDevices, error) // the devices of device plugins
}

func (k Kubelet) List(context.Context, *podresourcesapi.ListPodResourcesRequest) (*podresourcesapi.ListPodResourcesResponse, error) {
	pods, err := k.Pods()
	return &podresourcesapi.ListPodResourcesResponse{PodResources: pods}, err
}

func (k Kubelet) GetAllocatableResources(context.Context, *podresourcesapi.AllocatableResourcesRequest) (*podresourcesapi.AllocatableResourcesResponse, error) {
	devices, err := k.Plugins()
	return &podresourcesapi.AllocatableResourcesResponse{Devices: devices}, err
}

// Serve serves at a socket until stop is called, or the test ends. Then it removes the socket.
func (k Kubelet) Serve(t testing.TB, socket string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", socket)
	difftest.Must(t, err)
	server := grpc.NewServer()
	podresourcesapi.RegisterPodResourcesListerServer(server, k)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	return server.Stop
}

// Pod returns a pod whose container has these devices and claims.
func Pod(namespace, name string, devices []*podresourcesapi.ContainerDevices, claims ...*podresourcesapi.DynamicResource) *podresourcesapi.PodResources {
	return &podresourcesapi.PodResources{Namespace: namespace, Name: name, Containers: []*podresourcesapi.ContainerResources{{Devices: devices, DynamicResources: claims}}}
}

// Of returns devices of a resource.
func Of(resource string, ids ...string) []*podresourcesapi.ContainerDevices {
	return []*podresourcesapi.ContainerDevices{{ResourceName: resource, DeviceIds: ids}}
}

// Claim returns a driver's device of a claim, and the names of its CDI devices.
func Claim(driver, device string, cdi ...string) *podresourcesapi.DynamicResource {
	from := &podresourcesapi.ClaimResource{DriverName: driver, PoolName: "node", DeviceName: device}
	for _, name := range cdi {
		from.CdiDevices = append(from.CdiDevices, &podresourcesapi.CDIDevice{Name: name})
	}
	return &podresourcesapi.DynamicResource{ClaimNamespace: "ns", ClaimName: "c", ClaimResources: []*podresourcesapi.ClaimResource{from}}
}
