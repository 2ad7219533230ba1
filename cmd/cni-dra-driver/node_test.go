package main

import (
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/core/podresources/podresourcestest"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// kubelet serves only each third call of List, like one that limits the rate.
func kubelet() podresourcestest.Kubelet {
	lists, claim := 0, podresourcestest.Claim
	return podresourcestest.Kubelet{Pods: func() ([]*podresourcesapi.PodResources, error) {
		if lists++; lists%3 != 0 {
			return nil, status.Error(codes.ResourceExhausted, "rejected by rate limit")
		}
		return []*podresourcesapi.PodResources{podresourcestest.Pod("ns", "pod", podresourcestest.Of("example.com/vf", "0000:03:00.4"),
			claim("sriov.example.com", "0000-03-00-7"), claim("vf.example.com", "vf-10000-3b-00-2-x"), claim("nic.example.com", "eth3", "example.com/nic=pci-0000:05:00.1"),
			claim("gpu.example.com", "gpu-0", "example.com/gpu=uuid-00001234-03-00-1f"), claim(driver, "pci-0000-03-00-6"))}, nil
	}, Plugins: func() ([]*podresourcesapi.ContainerDevices, error) {
		return append(podresourcestest.Of("example.com/vf", "0000:03:00.4", "0000:03:00.5"), podresourcestest.Of("example.com/other", "0000:03:00.6")...), nil
	}}
}

func TestExternalAllocationsComeFromKubeletAndSRIOVCNI(t *testing.T) {
	o := alone(t)
	o.hostRoot = filepath.Dir(o.kubeconfig)
	o.podResources = "/kubelet.sock"
	o.devices = filepath.Join(o.hostRoot, "devices.yaml")
	locks := filepath.Join(o.hostRoot, journal.SRIOVLocks)
	difftest.Write(t, o.devices, "devices: []", 0o600)
	difftest.Write(t, filepath.Join(locks, "0000:03:00.5"), "/proc/self/ns/net", 0o600)
	offered, err := o.inventory(sysfs.New(os.DirFS("/sys")))
	difftest.Must(t, err)
	const locked = "sriov-cni has allocated it to network namespace /proc/self/ns/net"
	o.podResourcesGiven = true
	_, err = o.inventory(sysfs.New(os.DirFS("/sys")))
	difftest.Says(t, err, "--pod-resources-socket") // the socket on the command line does not exist
	_, err = offered.Others(t.Context())
	difftest.Says(t, err, "--pod-resources-socket") // the allocations of device plugins are unknown
	socket := filepath.Join(o.hostRoot, o.podResources)
	_, err = podresources.Advertised(t.Context(), socket, "example.com/vf", "0000:03:00.4")
	difftest.Says(t, err, "kubelet.sock")
	stop := kubelet().Serve(t, socket)
	got, err := offered.Others(t.Context())
	difftest.Must(t, err)
	difftest.Equal(t, got, map[string]string{
		"0000:03:00.4": "pod ns/pod has it from device plugin example.com/vf", "0000:03:00.5": locked, "0000:03:00.7": "pod ns/pod has it from DRA driver sriov.example.com",
		"10000:3b:00.2": "pod ns/pod has it from DRA driver vf.example.com", "0000:05:00.1": "pod ns/pod has it from DRA driver nic.example.com",
	})
	for device, want := range map[string]bool{"0000:03:00.4": true, "0000:03:00.5": true, "0000:03:00.6": false} {
		if got, err := podresources.Advertised(t.Context(), socket, "example.com/vf", device); got != want || err != nil {
			t.Errorf("a plugin offers %s: %v, %v; want %v", device, got, err, want)
		}
	}
	stop() // removes the socket
	difftest.Write(t, socket, "", 0o600)
	got, err = offered.Others(t.Context())
	difftest.Says(t, err, "--pod-resources-socket") // the kubelet does not answer
	difftest.Equal(t, len(got), 5)
}

// The capture is read each time, because users change it while they try rules.
func TestCaptureReplacesNode(t *testing.T) {
	o := alone(t)
	dir := filepath.Dir(o.kubeconfig)
	o.devices, o.captureFile = filepath.Join(dir, "devices.yaml"), filepath.Join(dir, "host.txtar")
	difftest.Must(t, os.WriteFile(o.captureFile, capturetest.Text(t, "igb-sriov"), 0o600), os.WriteFile(o.devices, []byte("devices: []"), 0o600))
	sys, err := o.sysfs(config.Node{Sysfs: "/sys"})
	difftest.Must(t, err)
	vf, err := pci.Parse("0000:01:10.6")
	difftest.Must(t, err)
	if _, ok, err := sys.PCI(vf); !ok || err != nil {
		t.Errorf("its functions are not found: %v", err)
	}
	if devices, held := o.own(config.Node{Sysfs: "/sys", StateDir: "/var/lib/cni/devinfo"}, sys, ""); devices != nil || held != nil {
		t.Error("this node's devices would be changed, or held, by a captured host's addresses")
	}
	offered, err := o.inventory(sys)
	difftest.Must(t, err)
	host, err := offered.Host()
	difftest.Must(t, err)
	if devices, _, err := inventory.Read(host); err != nil || len(devices) != 9 {
		t.Errorf("%d devices, %v", len(devices), err)
	}
	difftest.Must(t, os.Remove(o.captureFile))
	_, err = offered.Host()
	difftest.Says(t, err, "--capture")
}

// devinfo-agent installs the settings while the driver runs.
func TestAllowedDevicesAreReadForEachNetwork(t *testing.T) {
	o := alone(t)
	o.captureFile = filepath.Join(filepath.Dir(o.kubeconfig), "host.txtar")
	difftest.Must(t, os.WriteFile(o.captureFile, capturetest.Text(t, "igb-sriov"), 0o600))
	client, err := connect(o)
	difftest.Must(t, err)
	node, bootID, err := o.node()
	difftest.Must(t, err)
	agent, err := newAgent(o, node, bootID, client, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	difftest.Must(t, err)
	defer agent.Close()
	onVFIO := &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:01:10.6"}}
	for _, allowed := range []string{"0000:03:00.0", "0000:01:10.6", "0000:03:00.0"} {
		difftest.Must(t, os.WriteFile(o.nodeConfig, []byte(`{"allowedDevices": ["`+allowed+`"]}`), 0o600))
		given, err := agent.Node.Grant(&state.Claim{}, &state.Attachment{}, onVFIO)
		difftest.Must(t, err)
		refused := strings.Contains(fmt.Sprint(given.Refusals), "allowedDevices does not contain it")
		difftest.Same(t, "refused with allowedDevices "+allowed, refused, allowed != onVFIO.PCI.Address)
	}
}

// A driver that cannot start records the error for devinfoctl, and the next one removes it.
func TestInvalidRulesAreRecordedForDevinfoctl(t *testing.T) {
	o := alone(t)
	o.devices = filepath.Join(filepath.Dir(o.kubeconfig), "devices.yaml")
	start := func(rules string) (*state.Offer, error) {
		t.Helper()
		difftest.Must(t, os.WriteFile(o.devices, []byte(rules), 0o600))
		_, failed := o.inventory(sysfs.New(os.DirFS("/sys")))
		left, err := state.ReadOffer(o.stateDir())
		difftest.Must(t, err)
		return left, failed
	}
	left, err := start("devices: [{sharing: exclusive, pfNames: [eth0]}, {sharing: mine, ifNames: [eth1]}]")
	if err == nil || left == nil || left.Rules != o.devices || left.Problem != err.Error() || !strings.Contains(left.Problem, `devices[1].sharing: "mine"`) {
		t.Errorf("%v is told as %+v", err, left)
	}
	fifo := filepath.Join(filepath.Dir(o.devices), "fifo")
	difftest.Must(t, syscall.Mkfifo(fifo, 0o600))
	o.devices = fifo
	go func() { _ = os.WriteFile(fifo, []byte("devices: []"), 0) }() // without it, a reader would wait for ever
	_, err = o.inventory(nil)
	difftest.Says(t, err, "--devices: "+fifo+": not a regular file")
	o.devices = ""
	_, err = o.inventory(nil)
	difftest.Must(t, err)
	if left, err := state.ReadOffer(o.stateDir()); left != nil || err != nil {
		t.Errorf("without rules: %+v, %v", left, err)
	}
}

// Its gate program and the offer are of the driver that runs.
func TestSecondDriverChangesNothing(t *testing.T) {
	o := alone(t)
	recorded := &state.Offer{Rules: "the first driver's"}
	running, err := state.Open(o.stateDir())
	difftest.Must(t, err)
	defer running.Close()
	difftest.Must(t, state.WriteOffer(o.stateDir(), recorded))
	client, err := connect(o)
	difftest.Must(t, err)
	node, bootID, err := o.node()
	difftest.Must(t, err)
	for _, o.devices = range []string{"", filepath.Join(o.pluginsDir, "no-such-file")} {
		_, err = newAgent(o, node, bootID, client, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		difftest.Is(t, err, state.ErrLocked)
		left, err := state.ReadOffer(o.stateDir())
		difftest.Must(t, err)
		difftest.Equal(t, left, recorded)
		_, err = os.Stat(filepath.Join(o.cniBinDir, gateName))
		difftest.Is(t, err, fs.ErrNotExist)
	}
}

func TestGateIsInstalledBesidePlugins(t *testing.T) {
	o := alone(t)
	o.hostRoot, o.cniBinDir = filepath.Dir(o.kubeconfig), "/opt/cni/bin"
	o.gate = filepath.Join(o.hostRoot, "beside")
	difftest.Must(t, os.MkdirAll(filepath.Join(o.hostRoot, "opt/cni/bin"), 0o755))
	difftest.Must(t, os.WriteFile(o.gate, []byte("program"), 0o755), o.keepGate(slog.New(slog.DiscardHandler)))
	difftest.Equal(t, difftest.Read(t, filepath.Join(o.hostRoot, "opt/cni/bin/cni-dra-gate")), "program")
}
