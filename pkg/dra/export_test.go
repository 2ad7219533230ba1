package dra

import (
	"context"

	"google.golang.org/grpc"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/devices/inventory"
)

// Survey reads the node and returns its slices.
func Survey(a *Agent) []inventory.Slice { return SurveyUntil(context.Background(), a) }

// SurveyUntil is Survey with a context.
func SurveyUntil(ctx context.Context, a *Agent) []inventory.Slice {
	list, _ := a.Node.Slices(ctx)
	return list
}

// ToOffer returns a channel that receives when the node's devices must be published again.
func ToOffer(a *Agent) <-chan struct{} { return a.Node.Changed() }

// Withheld returns the devices of the node that are not offered.
func Withheld(a *Agent) map[string]bool { return a.Node.Withheld() }

// Problems returns the number of unreadable records.
func Problems(a *Agent) int { return a.Census().Unreadable }

// HealthOf returns a Kubelet for the health of an agent's devices.
func HealthOf(a *Agent, node string) *Kubelet {
	return &Kubelet{agent: a, options: KubeletOptions{Node: node}}
}

// WithoutDevices returns an agent that offers no devices of the node.
func WithoutDevices() *Agent {
	return &Agent{&claim.Engine{Options: claim.Options{Node: devices.New(devices.Options{})}}}
}

// Health returns the health of an agent's devices, and a channel that is closed when it changes.
func Health(a *Agent, pool string) ([]kubeletplugin.DeviceHealth, <-chan struct{}) {
	return a.Node.Health(pool)
}

// Unstarted returns a Kubelet without sockets. Intercept calls its interceptor.
func Unstarted(a *Agent, o KubeletOptions) *Kubelet { return &Kubelet{agent: a, options: o} }
func (k *Kubelet) Intercept(ctx context.Context, request any, handle grpc.UnaryHandler) (any, error) {
	return k.intercept(ctx, request, nil, handle)
}
