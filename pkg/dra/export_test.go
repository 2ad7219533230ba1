package dra

import (
	"context"

	"google.golang.org/grpc"
)

// Unstarted returns a Kubelet without sockets. Intercept calls its interceptor.
func Unstarted(a *Agent, o KubeletOptions) *Kubelet {
	files := &metadataFiles{driver: a.Options.Driver, cdiDir: a.Options.CDIDir, specs: map[string][]byte{}}
	return &Kubelet{agent: a, options: o, ctx: context.Background(), metadata: files, wakes: newWakes()}
}

func (k *Kubelet) Tidy() error { return k.metadata.tidy() }

// Wake wakes the pods of a device.
func (k *Kubelet) Wake(device string) { k.wakes.wake(device) }
func (k *Kubelet) Intercept(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	return k.intercept(ctx, request, nil, handle)
}
