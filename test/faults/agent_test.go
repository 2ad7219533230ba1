package faults_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/agent"
	"devinfo-cni.io/pkg/agent/inject"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/httpstatus"
	"devinfo-cni.io/pkg/core/install"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// helpers are programs that the test binary is under other names: parts of devinfo-agent, which otherwise runs until it
// is stopped. Each prints its result and returns an exit code.
var helpers = map[string]func() error{"create-container": createContainer, "agent-round": agentRound}

const stageDir = "/run/stage"

func settings() (config.Node, error) { return config.LoadNode(nodeFile) }

type noMetrics struct{}

func (noMetrics) Decided(inject.Decision, inject.Reason, time.Duration) {}
func (noMetrics) Withheld(inject.Withheld)                              {}
func (noMetrics) Disagrees(inject.Disagreement)                         {}
func (noMetrics) Staged(int)                                            {}

// createContainer prints what the agent gives a container of the pod of others, or why it refuses the container.
func createContainer() error {
	boot, err := journal.BootID()
	sys, sysErr := sysfs.Open(sysDir)
	if err = cmp.Or(err, sysErr); err != nil {
		return err
	}
	kernel := link.NewKernel(sys.Files())
	p := inject.New(inject.Config{
		StageDir: stageDir, Node: settings, BootID: boot, MissingInfo: inject.Allow, Metrics: noMetrics{},
		Finder: &discovery.Finder{Sys: sys, Interfaces: kernel, Eswitches: kernel}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	pod := &api.PodSandbox{
		Id: others.container, Uid: others.uid, Name: "web", Namespace: "shop",
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: others.netns}}},
	}
	got, _, err := p.CreateContainer(context.Background(), pod, &api.Container{Id: "c", PodSandboxId: pod.Id, Name: "app", Linux: &api.LinuxContainer{}})
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(got, "", " ")
	fmt.Printf("%s\n", text)
	return err
}

// agentRound lets each component of the agent run once, and prints its health.
func agentRound() error {
	boot, err := journal.BootID()
	if err != nil {
		return err
	}
	const never = time.Hour
	a := agent.New(agent.Options{
		Plugin: &install.PluginFile{From: "/none/devinfo", Dir: cniDir}, NodeConfig: nodeFile, BootID: boot, CNIPath: cniDir, HostRoot: "/",
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
