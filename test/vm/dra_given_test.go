//go:build vm

package vm_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// noneGiven is a kubelet whose device plugins have given nothing away. It knows a pod, the
// driver's own: one that knows none is not believed at once.
type noneGiven struct {
	podresources.UnimplementedPodResourcesListerServer
}

func (noneGiven) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	return &podresources.ListPodResourcesResponse{PodResources: []*podresources.PodResources{{Name: "cni-dra-driver", Namespace: "cni-dra-driver"}}}, nil
}

// serveNoneGiven answers where the agent asks.
func serveNoneGiven(t *testing.T) {
	t.Helper()
	const socket = "/var/lib/kubelet/pod-resources/kubelet.sock"
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, noneGiven{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop) // which removes the socket
}
