//go:build vm

package vm_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// An example is one of deploy/examples that needs a device, as it stands: the real Multus
// reads its network and pod and runs the chain, with the real devinfo and host-device, and
// with the stand-ins for sriov, ovs and rdma. NRI then asks the agent what a container gets.
// Examples without a device are run in pods, by test/e2e.
type example struct {
	name     string // of the file
	network  string // "" = as the file
	deviceID string
	pool     string // what the device plugin has written of the device; "" = nothing
	settings string // of the node: JSON
	binDir   string // of plugins that come first; "" = none do
	ifName   string // "" = net1
	pod      func(t *testing.T, text string) *corev1.Pod

	info  string   // the device-info file that is wanted
	nodes []string // those that a container gets

	firstDel string // how the first DEL fails; "" = it does not
}

// A trial is an example that is running.
type trial struct {
	example
	*sandbox
	status     status
	nri        *adaptation.Adaptation
	adjustment *api.ContainerAdjustment
}

// podOf reads an example's pod as the API server would.
func podOf(t *testing.T, text string) *corev1.Pod {
	t.Helper()
	pod := new(corev1.Pod)
	must(t, yaml.UnmarshalStrict([]byte(text), pod))
	return pod
}

// begin starts the example's pod, and compares what the file, Multus and a container say.
func (e example) begin(t *testing.T) *trial {
	t.Helper()
	if e.pod == nil {
		e.pod = podOf
	}
	if e.network == "" {
		e.network = e.name
	}
	if e.ifName == "" {
		e.ifName = "net1"
	}
	settings := filepath.Join(t.TempDir(), "node.json")
	write(t, settings, e.settings)
	t.Setenv("DEVINFO_NODE_CONFIG", settings)
	c := newCluster(t)
	if e.binDir != "" {
		c.binDir = e.binDir
	}
	text, resource := c.example(e.name)
	if e.pool != "" {
		inPool(t, strings.ReplaceAll(resource, "/", "-")+"-"+e.deviceID+"-device.json", e.pool)
	}
	r := &trial{example: e, nri: nri(t), sandbox: c.sandbox(e.pod(t, text), e.deviceID)}
	r.start()
	r.check()
	file := read(t, r.file())
	same(t, r.file(), indent(t, file), indent(t, e.info))
	r.status = r.sandbox.status(e.ifName)
	same(t, "network-status", sorted(t, string(r.status.DeviceInfo)), sorted(t, e.info))
	r.adjustment = r.container(r.nri)
	given(t, r.adjustment, e.ifName, file, e.nodes...)
	return r
}

// file is where Multus wants the device-info file.
func (r *trial) file() string {
	return infoDir + "/default-" + r.example.network + "-" + sandboxID + "_" + r.ifName
}

// check runs CHECK on the chain as Multus has run it, who does not.
func (r *trial) check() {
	r.t.Helper()
	cni := libcni.NewCNIConfigWithCacheDir([]string{r.cluster.binDir, plugins}, multusDir, r.exec())
	text, rt, err := cni.GetNetworkListCachedConfig(&libcni.NetworkConfigList{Name: r.example.network},
		&libcni.RuntimeConf{ContainerID: sandboxID, IfName: r.ifName, NetNS: r.rt.NetNS})
	must(r.t, err)
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		r.t.Fatalf("%v: %s", err, text)
	}
	if err := cni.CheckNetworkList(context.Background(), list, rt); err != nil {
		r.t.Errorf("CHECK: %s", fullText(err))
	}
	r.silent()
}

// end ends the pod, as a container runtime does, and looks for what is left.
func (r *trial) end() {
	r.t.Helper()
	r.ended = true
	if r.firstDel != "" {
		if err := r.tryDel(); err == nil || !strings.Contains(fullText(err), r.firstDel) {
			r.t.Errorf("first DEL: %s, want %s", fullText(err), r.firstDel)
		}
		r.lines.Reset() // which have the error too
	}
	if err := r.tryDel(); err != nil {
		r.t.Fatalf("DEL: %s\n%s", fullText(err), r.warnings())
	}
	r.silent()
	if exists(r.file()) {
		r.t.Errorf("%s is still there", r.file())
	}
	if err := r.nri.RemovePodSandbox(r.t.Context(), &adaptation.RemovePodSandboxRequest{Pod: r.sandboxOf()}); err != nil {
		r.t.Error(err)
	}
	eventually(r.t, "the container's files are removed", func() bool { return !exists(r.adjustment.Mounts[0].Source) })
	leases, _ := filepath.Glob("/var/lib/cni/networks/" + r.example.network + "/*.*.*.*")
	cached, _ := filepath.Glob(multusDir + "/results/*")
	if len(leases)+len(cached) > 0 {
		r.t.Errorf("left behind: %s %s", leases, cached)
	}
}

// inPool puts a device plugin's file into the machine, until the end of the test.
func inPool(t *testing.T, name, text string) (path string) {
	t.Helper()
	must(t, os.MkdirAll(poolDir, 0o755))
	path = poolDir + "/" + name
	write(t, path, text)
	t.Cleanup(func() {
		same(t, path, read(t, path), text)
		os.Remove(path)
	})
	return path
}

// poolPCI is what the SR-IOV device plugin writes of a VF that is not of an RDMA pool.
func poolPCI(address string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, address)
}

// group is the node of a device's IOMMU group.
func group(t *testing.T, address string) string {
	t.Helper()
	target, err := os.Readlink("/sys/bus/pci/devices/" + address + "/iommu_group")
	must(t, err)
	return "/dev/vfio/" + filepath.Base(target)
}
