package dra

import (
	"context"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"

	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim"
)

// Agent connects the engine to the container runtime as an NRI plugin.
type Agent struct{ *claim.Engine }

// New creates an Agent: see [claim.New].
func New(o claim.Options) (*Agent, error) {
	engine, err := claim.New(o)
	if err != nil {
		return nil, err
	}
	return &Agent{engine}, nil
}

// ServeNRI keeps the agent connected to the runtime's NRI socket until ctx ends. index has two digits.
func (a *Agent) ServeNRI(ctx context.Context, socket, index string) error {
	return nri.Plugin{Handler: a, Name: a.Options.Driver, Index: index, Socket: socket, FailRequests: true, Connected: a.SetConnected, Log: a.Options.Log}.Serve(ctx)
}

// Configure implements [stub.ConfigureInterface]. It subscribes to the start and end of sandboxes, and to containers.
func (a *Agent) Configure(_ context.Context, _, runtime, version string) (stub.EventMask, error) {
	a.Options.Log.Info("container runtime connected", "runtime", runtime, "version", version)
	return api.MustParseEventMask("RunPodSandbox,StopPodSandbox,RemovePodSandbox,CreateContainer"), nil
}

// Synchronize implements [stub.SynchronizeInterface].
func (a *Agent) Synchronize(_ context.Context, pods []*api.PodSandbox, _ []*api.Container) ([]*api.ContainerUpdate, error) {
	var all []claim.Sandbox
	for _, pod := range pods {
		all = append(all, sandboxOf(pod))
	}
	a.Engine.Synchronize(all)
	return nil, nil
}

// RunPodSandbox implements [stub.RunPodInterface].
func (a *Agent) RunPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	return a.StartSandbox(ctx, sandboxOf(pod))
}

// CreateContainer implements [stub.CreateContainerInterface]. It changes no container.
func (a *Agent) CreateContainer(_ context.Context, pod *api.PodSandbox, _ *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return nil, nil, a.CheckContainer(sandboxOf(pod))
}

// StopPodSandbox implements [stub.StopPodInterface]. It always returns nil, because the runtime cannot act on an error.
func (a *Agent) StopPodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	a.EndSandbox(ctx, "StopPodSandbox", sandboxOf(pod))
	return nil
}

// RemovePodSandbox implements [stub.RemovePodInterface]. It detaches a pod whose StopPodSandbox was missed.
func (a *Agent) RemovePodSandbox(ctx context.Context, pod *api.PodSandbox) error {
	a.EndSandbox(ctx, "RemovePodSandbox", sandboxOf(pod))
	return nil
}

func sandboxOf(p *api.PodSandbox) claim.Sandbox {
	namespaces := p.GetLinux().GetNamespaces()
	return claim.Sandbox{
		ID: p.GetId(), Pod: state.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid()},
		Netns: nri.Namespace("network", namespaces).GetPath(), UserNamespace: nri.Namespace("user", namespaces) != nil,
	}
}
