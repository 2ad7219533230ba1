package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/nri/nritest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linktest"
)

const (
	burstPods = 110 // the kubelet's default limit; all start after a reboot
	vfInfo    = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:3b:00.3","pf-pci-address":"0000:3b:00.0"}}`
)

// BenchmarkBurst creates all pods of a node at the rates of real runtimes (docs/operate.md). Each pod has
// two VFs with RDMA, an init container and one other container. The benchmark reports the agent's processor
// time for each container, and its load in thousandths of a processor.
func BenchmarkBurst(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("requires root: the agent enters network namespaces")
	}
	for runtime, sandboxTakes := range map[string]time.Duration{"containerd": 121 * time.Millisecond, "cri-o": 32 * time.Millisecond} {
		b.Run(runtime, func(b *testing.B) { burst(b, sandboxTakes) })
	}
}

func burst(b *testing.B, sandboxTakes time.Duration) {
	n := newNode(b)
	n.hardware()
	netns, runtime, address := linktest.NewNetns(b), nritest.Serve(b, n.at("nri.sock"), nil), free(b)
	n.start("--metrics-address="+address, "--device-root="+n.at("host"))
	n.health(address, "[+] nri", "[+] settings")
	pods := time.NewTicker(sandboxTakes)
	defer pods.Stop()
	began, before := time.Now(), n.busy(address)
	for id := range burstPods * b.N {
		<-pods.C
		sandbox := fmt.Sprintf("%064x", id)
		n.attach(sandbox, netns, "net1", "net2")
		n.make(runtime, sandbox, netns, "init", "app")
	}
	busy := n.busy(address) - before
	b.ReportMetric(1000*busy/float64(2*burstPods*b.N), "cpu-ms/container")
	b.ReportMetric(1000*busy/time.Since(began).Seconds(), "mCPU")
}

// hardware gives the node the devices of a captured host.
func (n *node) hardware() {
	n.t.Helper()
	n.must(capturetest.Load(n.t, "mlx5-legacy").Unpack(n.at("sys")))
	n.must(os.MkdirAll(n.at("host/dev/infiniband"), 0o755))
	for _, name := range []string{"uverbs3", "uverbs4", "rdma_cm"} {
		n.must(os.Symlink("/dev/null", n.at("host/dev/infiniband/"+name)))
	}
	n.settings(fmt.Sprintf(`, "sysfs": %q, "injectDeviceNodes": true, "allowedDevices": ["0000:3b:00.3"]`, n.at("sys")))
}

// attach records attachments like ADD.
func (n *node) attach(id, netns string, ifNames ...string) {
	n.t.Helper()
	boot, err := journal.BootID()
	n.must(err)
	for _, ifName := range ifNames {
		checktest.Record(n.t, config.Node{StateDir: n.at("state"), DeviceInfoDir: n.at("info")}, boot, journal.Entry{
			Key: journal.Key{Network: "sriov-net", ContainerID: id, IfName: ifName}, Netns: netns, Complete: true,
			File: "sriov-net-" + id + "_" + ifName, Info: []byte(vfInfo), Leases: []journal.DeviceLease{{ID: "pci-0000:3b:00.3", Mode: journal.Exclusive}},
			Pod: "burst", // one pod for all, because the VF has an exclusive lease
		})
	}
}

// make sends the runtime's requests for containers, and expects that each container gets the devices.
func (n *node) make(runtime *adaptation.Adaptation, id, netns string, containers ...string) {
	n.t.Helper()
	network := []*api.LinuxNamespace{{Type: "network", Path: netns}}
	for _, name := range containers {
		answer, err := runtime.CreateContainer(n.t.Context(), &adaptation.CreateContainerRequest{
			Pod:       &api.PodSandbox{Id: id, Uid: id, Name: "web", Namespace: "shop", Linux: &api.LinuxPodSandbox{Namespaces: network}},
			Container: &api.Container{Id: id + name, PodSandboxId: id, Name: name},
		})
		n.must(err)
		if got := answer.GetAdjust(); len(got.GetMounts()) != 1 || len(got.GetLinux().GetDevices()) != 3 {
			n.t.Fatalf("container %s of %s was given %v", name, id, got)
		}
	}
}

var cpuSeconds = regexp.MustCompile(`(?m)^process_cpu_seconds_total (.*)$`)

// busy returns the processor time of an agent in seconds.
func (n *node) busy(address string) float64 {
	n.t.Helper()
	text, err := get(address, "/metrics")
	n.must(err)
	found := cpuSeconds.FindStringSubmatch(text)
	if found == nil {
		n.t.Fatalf("no processor time in\n%s", text)
	}
	seconds, err := strconv.ParseFloat(found[1], 64)
	n.must(err)
	return seconds
}
