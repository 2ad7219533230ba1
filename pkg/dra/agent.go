// Package dra is the node agent of the CNI DRA driver: it attaches pods to the CNI networks that their
// resource claims ask for (Device Configuration API, group cni.networking.x-k8s.io/v1alpha1), and reports
// the result to pods and API server (KEP-4817, KEP-5304).
//
// Package claim is the engine, and knows no device. Package devices knows the devices of the node, and no
// sandbox. This package connects them to kubelet, container runtime and API server. README.md follows one
// claim through all three.
package dra

import (
	"context"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/pkg/dra/claim"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/nri"
)

// Options configure an [Agent].
type Options struct {
	claim.Options // but for Node
	// Devices has no Driver, StateDir, BootID, Metrics, Log and Step: they are those of the engine.
	Devices devices.Options
}

// Agent is the engine as a plugin of the container runtime (NRI).
type Agent struct{ *claim.Engine }

// New reads the state directory and locks it for this process: see [claim.New].
func New(o Options) (*Agent, error) {
	o.Devices.Driver, o.Devices.StateDir, o.Devices.BootID = o.Driver, o.StateDir, o.BootID
	o.Devices.Metrics, o.Devices.Log, o.Devices.Step = o.Metrics, o.Log, o.Step
	o.Node = devices.New(o.Devices)
	engine, err := claim.New(o.Options)
	if err != nil {
		return nil, err
	}
	return &Agent{engine}, nil
}

// ServeNRI keeps the agent connected to the runtime at an NRI socket until ctx ends. index has two digits. A
// runtime that is away is no error.
func (a *Agent) ServeNRI(ctx context.Context, socket, index string) error {
	return nri.Plugin{Handler: a, Name: a.Driver, Index: index, Socket: socket, FailRequests: true, Connected: a.SetConnected, Log: a.Log}.Serve(ctx)
}

// Configure asks for the events of sandboxes.
func (a *Agent) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	a.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return api.MustParseEventMask("RunPodSandbox,StopPodSandbox,RemovePodSandbox"), nil
}

// Synchronize is [claim.Engine.Synchronize].
func (a *Agent) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	var all []claim.Sandbox
	for _, pod := range pods {
		all = append(all, sandboxOf(pod))
	}
	a.Engine.Synchronize(all)
	return nil, nil
}

// RunPodSandbox is [claim.Engine.StartSandbox].
func (a *Agent) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return a.StartSandbox(ctx, sandboxOf(pod))
}

// StopPodSandbox detaches a pod. It returns no error, for the runtime could do nothing about one.
func (a *Agent) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	a.EndSandbox(ctx, "StopPodSandbox", sandboxOf(pod))
	return nil
}

// RemovePodSandbox is StopPodSandbox, should that have been missed.
func (a *Agent) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	a.EndSandbox(ctx, "RemovePodSandbox", sandboxOf(pod))
	return nil
}

func sandboxOf(p *api.PodSandbox) claim.Sandbox {
	sb := claim.Sandbox{ID: p.GetId(), Pod: state.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: types.UID(p.GetUid())}}
	for _, ns := range p.GetLinux().GetNamespaces() {
		switch ns.GetType() {
		case "network":
			sb.Netns = ns.GetPath()
		case "user":
			sb.UserNamespace = true
		}
	}
	return sb
}
