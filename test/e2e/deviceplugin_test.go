//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/test/difftest"
)

// A pool is a resource of the node, and the file that its device plugin writes when it allocates a device.
type pool struct {
	Resource string
	Devices  []string // IDs
	Info     string   // text of the device-info file; "" = no file
}

// poolsVariable is the environment variable that makes the test binary run as the device plugin of these pools.
const poolsVariable = "E2E_DEVICE_PLUGIN"

// devicePlugin runs the test binary as the device plugin on the node until the end of the test.
func devicePlugin(t *testing.T, pools ...pool) {
	t.Helper()
	settings, err := json.Marshal(pools)
	must(t, err)
	t.Cleanup(func() { onNode(t, "rm", "-rf", devinfo.DevicePluginDir) })
	self, err := os.Executable()
	must(t, err)
	if _, err := tryOnNode("", "test", "-x", self); err != nil { // the node has a file system of its own
		data := difftest.Read(t, self)
		self = "/run/" + filepath.Base(self)
		feedOnNode(t, data, "sh", "-c", "cat>"+self+"&&chmod 755 "+self)
	}
	cmd := nodeCommand(self)
	cmd.Env = append(os.Environ(), poolsVariable+"="+string(settings))
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, limit, func() (err error) {
		free := onlyNode(t).Status.Allocatable
		for _, p := range pools {
			if n := free[corev1.ResourceName(p.Resource)]; n.Value() != int64(len(p.Devices)) {
				err = fmt.Errorf("the node does not offer %s: %v", p.Resource, free)
			}
		}
		return err
	})
}

// servePools runs the device plugin until the process is killed.
func servePools(settings string) error {
	var pools []pool
	if err := json.Unmarshal([]byte(settings), &pools); err != nil {
		return err
	}
	for n := range pools {
		if err := pools[n].offer(); err != nil {
			return fmt.Errorf("%s: %w", pools[n].Resource, err)
		}
	}
	select {}
}

// offer serves the pool, and registers it with the kubelet.
func (p *pool) offer() error {
	endpoint := "e2e-" + filepath.Base(p.Resource) + ".sock"
	path := v1beta1.DevicePluginPath + endpoint
	_ = os.Remove(path) // the socket of an earlier run
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &poolServer{pool: p})
	go func() { _ = server.Serve(l) }()
	kubelet, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(kubelet).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: p.Resource, Options: &v1beta1.DevicePluginOptions{},
	}, grpc.WaitForReady(true))
	return err
}

type poolServer struct {
	v1beta1.UnimplementedDevicePluginServer
	*pool
}

func (p *poolServer) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *poolServer) ListAndWatch(_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse]) error {
	answer := new(v1beta1.ListAndWatchResponse)
	for _, id := range p.Devices {
		answer.Devices = append(answer.Devices, &v1beta1.Device{ID: id, Health: v1beta1.Healthy})
	}
	if err := stream.Send(answer); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

// Allocate writes the files of the devices (section 4.1 of the Device Information Specification).
func (p *poolServer) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := new(v1beta1.AllocateResponse)
	for _, container := range request.ContainerRequests {
		for _, id := range container.DevicesIds {
			if p.Info == "" {
				continue
			}
			if err := os.MkdirAll(devinfo.DevicePluginDir, 0o755); err != nil {
				return nil, err
			}
			file := filepath.Join(devinfo.DevicePluginDir, devinfo.DevicePluginFile(p.Resource, id))
			if err := os.WriteFile(file, []byte(p.Info), 0o644); err != nil {
				return nil, err
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &v1beta1.ContainerAllocateResponse{})
	}
	return answer, nil
}
