package dra

import (
	"context"

	"google.golang.org/grpc"

	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// Survey reads the node and returns its slices.
func Survey(a *Agent) []inventory.Slice {
	list, _ := a.Node.Slices(context.Background())
	return list
}

// Unstarted returns a Kubelet without sockets. Intercept calls its interceptor.
func Unstarted(a *Agent, o KubeletOptions) *Kubelet { return &Kubelet{agent: a, options: o} }
func (k *Kubelet) Intercept(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	return k.intercept(ctx, request, nil, handle)
}
