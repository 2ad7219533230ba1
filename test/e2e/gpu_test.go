//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

const (
	gpuDriver = "gpu.e2e.example.com"
	// gpuVariable has the program of the tests be that driver, on the node of that name.
	gpuVariable = "E2E_GPU_NODE"
)

// gpuDevices are one below each root complex of the captured host.
func gpuDevices() (list []resourceapi.Device) {
	for _, d := range [][2]string{{"gpu-far", "pci0000:40"}, {"gpu-near", "pci0000:00"}} {
		list = append(list, resourceapi.Device{Name: d[0], Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"model": {StringValue: &d[0]}, "resource.kubernetes.io/pcieRoot": {StringValue: &d[1]},
		}})
	}
	return list
}

// runGPUs runs the driver on the node for the time of a test.
func runGPUs(t *testing.T) {
	t.Helper()
	slicesOf := metav1.ListOptions{FieldSelector: "spec.driver=" + gpuDriver}
	t.Cleanup(func() {
		onNode(t, "rm", "-rf", filepath.Join(kubeletplugin.KubeletPluginsDir, gpuDriver), filepath.Join(kubeletplugin.KubeletRegistryDir, gpuDriver+"-reg.sock"))
		if err := cluster.client.ResourceV1().ResourceSlices().DeleteCollection(context.Background(), metav1.DeleteOptions{}, slicesOf); err != nil {
			t.Error(err)
		}
	})
	serveOnNode(t, gpuVariable+"="+onlyNode(t).Name, "KUBECONFIG="+cluster.kubeconfig)
	eventually(t, 2*time.Minute, func() error {
		list, err := cluster.client.ResourceV1().ResourceSlices().List(t.Context(), slicesOf)
		if err == nil && len(list.Items) != 1 {
			err = fmt.Errorf("%d slices of %s", len(list.Items), gpuDriver)
		}
		return err
	})
}

// serveGPUs is the driver. It ends with the program.
func serveGPUs(node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	dir := filepath.Join(kubeletplugin.KubeletPluginsDir, gpuDriver)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	helper, err := kubeletplugin.Start(ctx, gpus{}, kubeletplugin.DriverName(gpuDriver), kubeletplugin.NodeName(node),
		kubeletplugin.KubeClient(client), kubeletplugin.PluginDataDirectoryPath(dir))
	if err != nil {
		return err
	}
	pool := resourceslice.Pool{Slices: []resourceslice.Slice{{Devices: gpuDevices()}}}
	if err := helper.PublishResources(ctx, resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{node: pool}}); err != nil {
		return err
	}
	select {}
}

// gpus gives what was allocated, which is nothing but a name.
type gpus struct{}

func (gpus) PrepareResourceClaims(_ context.Context, claims []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	all := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		var result kubeletplugin.PrepareResult
		for _, r := range claim.Status.Allocation.Devices.Results {
			if r.Driver == gpuDriver {
				result.Devices = append(result.Devices, kubeletplugin.Device{Requests: []string{r.Request}, PoolName: r.Pool, DeviceName: r.Device})
			}
		}
		all[claim.UID] = result
	}
	return all, nil
}

func (gpus) UnprepareResourceClaims(_ context.Context, claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	all := map[types.UID]error{}
	for _, claim := range claims {
		all[claim.UID] = nil
	}
	return all, nil
}

func (gpus) HandleError(_ context.Context, err error, msg string) {
	fmt.Fprintln(os.Stderr, gpuDriver, msg, err)
}

func (gpus) WatchHealthStatus(ctx context.Context, _ chan<- kubeletplugin.DeviceHealthReport) error {
	<-ctx.Done()
	return nil
}
