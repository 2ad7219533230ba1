package dra

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// Survey looks at the node as for its slices, and gives these.
func Survey(a *Agent) []inventory.Slice { return SurveyUntil(context.Background(), a) }

// SurveyUntil does so for as long as ctx has not ended.
func SurveyUntil(ctx context.Context, a *Agent) []inventory.Slice {
	list, _ := a.Node.Slices(ctx)
	return list
}

// ToOffer tells that the node's devices are to be published again.
func ToOffer(a *Agent) <-chan struct{} { return a.Node.Changed() }

// Withheld are the devices that are not offered though the node has them.
func Withheld(a *Agent) map[string]bool { return a.Node.Withheld() }

// Problems is how many records could not be used at the start.
func Problems(a *Agent) int { return a.Census().Unreadable }

// HealthOf returns the kubelet's plugin of an agent on that node.
func HealthOf(a *Agent, node string) *Kubelet {
	return &Kubelet{agent: a, options: KubeletOptions{Node: node}}
}

// WithoutDevices returns an agent that offers none of the node's devices.
func WithoutDevices() *Agent {
	return &Agent{&claim.Engine{Options: claim.Options{Node: devices.New(devices.Options{})}}}
}

// Health is what the kubelet is told of the devices of an agent's node.
func Health(a *Agent, pool string) ([]kubeletplugin.DeviceHealth, <-chan struct{}) {
	return a.Node.Health(pool)
}

// Unstarted is a kubelet's plugin without sockets, and Intercept what it makes of a call.
func Unstarted(a *Agent, o KubeletOptions) *Kubelet { return &Kubelet{agent: a, options: o} }
func (k *Kubelet) Intercept(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	return k.intercept(ctx, request, nil, handle)
}
