//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// devicePluginDir is the directory where the SR-IOV device plugin writes device-info files.
const devicePluginDir = "/var/run/k8s.cni.cncf.io/devinfo/dp"

// A pool is a resource of the node, and the file that its device plugin writes when it allocates a device.
type pool struct {
	Resource string
	Devices  []string // IDs
	Info     string   // text of the device-info file; "" = no file
}

// poolsVariable is the environment variable that makes the test binary run as the device plugin of these pools.
const poolsVariable = "E2E_DEVICE_PLUGIN"

// devicePlugin runs the device plugin on the node until the end of the test.
func devicePlugin(t *testing.T, pools ...pool) {
	t.Helper()
	settings, err := json.Marshal(pools)
	must(t, err)
	t.Cleanup(func() { onNode(t, "rm", "-rf", devicePluginDir) })
	serveOnNode(t, poolsVariable+"="+string(settings))
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

// servePools runs the device plugin until the process ends.
func servePools(settings string) error {
	var pools []pool
	if err := json.Unmarshal([]byte(settings), &pools); err != nil {
		return err
	}
	ended := make(chan error)
	for n := range pools {
		if err := pools[n].serve(ended); err != nil {
			return fmt.Errorf("%s: %w", pools[n].Resource, err)
		}
	}
	return <-ended
}

// serve offers the pool to the kubelet. A kubelet that starts removes the sockets of its plugins, so serve offers it
// again. It sends an error to ended.
func (p *pool) serve(ended chan<- error) error {
	path := v1beta1.DevicePluginPath + p.endpoint()
	server, err := p.offer(path)
	if err != nil {
		return err
	}
	go func() {
		for range time.Tick(time.Second) {
			if _, err := os.Lstat(path); err == nil {
				continue
			}
			server.Stop()
			if server, err = p.offer(path); err != nil {
				ended <- err
				return
			}
		}
	}()
	return nil
}

func (p *pool) endpoint() string { return "e2e-" + filepath.Base(p.Resource) + ".sock" }

// offer registers the pool with the kubelet. The kubelet connects to the socket at path.
func (p *pool) offer(path string) (*grpc.Server, error) {
	_ = os.Remove(path) // the socket of an earlier run
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &poolServer{pool: p})
	go func() { _ = server.Serve(l) }()
	if err := p.register(); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

func (p *pool) register() error {
	kubelet, err := grpc.NewClient("unix://"+v1beta1.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer kubelet.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(kubelet).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: p.endpoint(), ResourceName: p.Resource, Options: &v1beta1.DevicePluginOptions{},
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
			if err := os.MkdirAll(devicePluginDir, 0o755); err != nil {
				return nil, err
			}
			name := strings.ReplaceAll(p.Resource+"-"+id+"-device.json", "/", "-")
			if err := os.WriteFile(filepath.Join(devicePluginDir, name), []byte(p.Info), 0o644); err != nil {
				return nil, err
			}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, &v1beta1.ContainerAllocateResponse{})
	}
	return answer, nil
}
