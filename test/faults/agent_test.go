package faults_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/agent/inject/injecttest"
	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/test/node"
)

// helpers are programs that the test binary is under other names: parts of the agents, which otherwise run until they
// are stopped. Each prints its result.
var helpers = map[string]func() error{
	"create-container": createContainer, "agent-round": agentRound, "refresh": refresh, "driver-publish": driverPublish, "driver-prepare": driverPrepare,
}

const stageDir = "/run/stage"

// injector returns the part of the agent that gives containers their device information.
func injector(metrics inject.Metrics) (*inject.Plugin, error) {
	c, err := injecttest.Config(node.Settings, stageDir, metrics)
	if err != nil {
		return nil, err
	}
	c.MissingInfo, c.Socket, c.Interval = inject.Allow, "/run/nri.sock", time.Hour
	return inject.New(c), nil
}

// createContainer prints what the agent gives a container of the pod of others, or why it refuses the container.
func createContainer() error {
	p, err := injector(injecttest.Uncounted{})
	if err != nil {
		return err
	}
	pod := &api.PodSandbox{
		Id: others.container, Uid: others.uid, Name: "web", Namespace: "shop",
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: others.netns}}},
	}
	got, _, err := p.CreateContainer(context.Background(), pod, &api.Container{Id: "c", PodSandboxId: pod.Id, Name: "app", Linux: &api.LinuxContainer{}})
	if err != nil {
		return err
	}
	return print(got)
}

// refreshed is closed after a refresh.
type refreshed struct {
	injecttest.Uncounted
	done chan int
}

func (r refreshed) Staged(n int) {
	select {
	case r.done <- n:
	default:
	}
}

// refresh compares the copies that containers see with the journal once, after the runtime has named its sandboxes.
func refresh() error {
	r := refreshed{done: make(chan int, 1)}
	p, err := injector(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	select {
	case n := <-r.done:
		fmt.Println("staged", n)
		cancel()
		return <-ended
	case err := <-ended:
		cancel()
		return err
	}
}

// agentRound lets each component of the agent run once, and prints its health.
func agentRound() error {
	boot, err := journal.BootID()
	if err != nil {
		return err
	}
	const never = time.Hour
	a := agent.New(agent.Options{
		Plugin: &install.PluginFile{From: "/none/devinfo", Dir: node.Bin}, NodeConfig: node.Settings, BootID: boot, CNIPath: node.Bin, HostRoot: "/",
		CheckInterval: never, SweepInterval: never, LookInterval: never, MaxSeries: 10, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { a.Run(ctx); close(ended) }()
	for slices.ContainsFunc(a.Checks(), func(c httpstatus.Check) bool {
		err := c.Ask() // the label is that of the plugin, which this agent does not find
		return c.Name != agent.Label && err != nil && err.Error() == "has not started yet"
	}) {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-ended
	for _, c := range a.Checks() {
		fmt.Println(c.Name, c.Ask())
	}
	return nil
}
