package dra

import (
	"context"

	"google.golang.org/grpc"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// Unstarted returns a Kubelet without sockets. Intercept calls its interceptor.
func Unstarted(a *Agent, o KubeletOptions) *Kubelet {
	files := &metadataFiles{driver: a.Options.Driver, cdiDir: a.Options.CDIDir, onRecord: a.IsOnRecord, specs: map[string][]byte{}}
	return &Kubelet{agent: a, options: o, ctx: context.Background(), metadata: files, wakes: newWakes()}
}

func (k *Kubelet) Tidy() error { return k.metadata.tidy() }

// Register answers a registration by the kubelet, and checks the Node object twice.
func (k *Kubelet) Register(ctx context.Context) error {
	_, err := k.intercept(ctx, &registerapi.RegistrationStatus{PluginRegistered: true}, nil, func(context.Context, any) (any, error) { return nil, nil })
	k.checkNode(ctx)
	k.checkNode(ctx)
	return err
}

// Wake wakes the pods of a device.
func (k *Kubelet) Wake(device string) { k.wakes.wake(device) }
func (k *Kubelet) Intercept(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	return k.intercept(ctx, request, nil, handle)
}
