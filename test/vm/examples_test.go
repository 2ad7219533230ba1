//go:build vm

package vm_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/containernetworking/cni/libcni"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
	plugin "devinfo-cni.io/plugins/devinfo"
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
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
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
	cni := libcni.NewCNIConfigWithCacheDir([]string{r.cluster.binDir, plugins}, multusDir, nil)
	text, rt, err := cni.GetNetworkListCachedConfig(&libcni.NetworkConfigList{Name: r.example.network},
		&libcni.RuntimeConf{ContainerID: sandboxID, IfName: r.ifName, NetNS: r.rt.NetNS})
	if err != nil {
		r.t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		r.t.Fatalf("%v: %s", err, text)
	}
	if err := cni.CheckNetworkList(context.Background(), list, rt); err != nil {
		r.t.Errorf("CHECK: %s", fullText(err))
	}
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

// poolPCI is what the SR-IOV device plugin writes of a VF that is not of an RDMA pool.
func poolPCI(address string) string {
	return fmt.Sprintf(`{"type":"pci","version":"1.1.0","pci":{"pci-address":%q}}`, address)
}

// group is the node of a device's IOMMU group.
func group(t *testing.T, address string) string {
	t.Helper()
	target, err := os.Readlink("/sys/bus/pci/devices/" + address + "/iommu_group")
	if err != nil {
		t.Fatal(err)
	}
	return "/dev/vfio/" + filepath.Base(target)
}

// A VF of the real igb; sriov is a stand-in.
func TestExampleSRIOV(t *testing.T) {
	needs(t, "igb")
	hardware := mac(t, "enp1s0v0")
	r := example{
		name: "sriov", deviceID: "0000:01:10.0", pool: poolPCI("0000:01:10.0"), settings: `{}`,
		info: pciInfo("0000:01:10.0", "0000:01:00.0"),
	}.begin(t)
	if len(r.status.IPs) != 1 || !strings.HasPrefix(r.status.IPs[0], "10.56.1.") || r.status.MAC != hardware || r.status.Name != "default/sriov" {
		t.Errorf("network-status %+v", r.status)
	}
	if onHost("enp1s0v0") || !inPod(sandboxID, "net1") {
		t.Error("the VF is not in the pod")
	}
	r.end()
	if !onHost("enp1s0v0") || mac(t, "enp1s0v0") != hardware {
		t.Error("the VF is not back")
	}
	nothingBut(t, sriovDir)
}

// A VF of the real igb on vfio-pci, with its real IOMMU group; sriov is a stand-in, which
// fails once as sriov-cni does. There is no DPDK: that what the pod's command reads is there
// is all that is tried.
func TestExampleSRIOVWithDPDK(t *testing.T) {
	needs(t, "igb")
	r := example{
		name: "sriov-dpdk", deviceID: "0000:01:10.6", pool: poolPCI("0000:01:10.6"), settings: `{"cdiDevices": ["0000:01:00.0"]}`,
		info:  pciInfo("0000:01:10.6", "0000:01:00.0"),
		nodes: []string{"/dev/vfio/vfio", group(t, "0000:01:10.6")}, firstDel: "failed to get netlink device with name net1: Link not found",
	}.begin(t)
	const asks = `$(jq -r '.pci."pci-address"' $DEVINFO_NET1)`
	if command := r.sandbox.pod.Spec.Containers[0].Command; !strings.Contains(command[len(command)-1], asks) {
		t.Errorf("the pod's command is %q, without %s", command, asks)
	}
	r.end()
	if driver, _ := os.Readlink("/sys/bus/pci/devices/0000:01:10.6/driver"); filepath.Base(driver) != "vfio-pci" {
		t.Errorf("the VF is on %s", driver)
	}
	nothingBut(t, sriovDir, "pci/0000:01:10.6") // sriov-cni's lock, until the namespace goes
}

// A whole card: the virtio PF, moved by the real host-device.
func TestExampleHostDevice(t *testing.T) {
	needs(t, "vpvdpa")
	hardware := mac(t, "enp2s0")
	r := example{
		name: "host-device", deviceID: "0000:02:00.0", pool: poolPCI("0000:02:00.0"), settings: `{}`,
		info: `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:02:00.0"}}`,
	}.begin(t)
	if onHost("enp2s0") || !inPod(sandboxID, "net1") || r.status.MAC != hardware {
		t.Errorf("the card is not in the pod: %+v", r.status)
	}
	r.end()
	if !onHost("enp2s0") {
		t.Error("the card is not back")
	}
}

// A VF of the real igb, with netdevsim as its switch: no emulated card has one. ovs is a
// stand-in, whose bridge is one of the kernel; devinfo is this program, which asks devlink
// for netdevsim's ports in the place of igb's, and is like the real one but for that. There
// is no file of a device plugin, which ovs-cni would want if it were told of the path.
func TestExampleOVS(t *testing.T) {
	needs(t, "igb", "nsim")
	r := example{
		name: "ovs", deviceID: "0000:01:10.2", settings: `{}`, binDir: switchDir(t),
		info: representedInfo("0000:01:10.2", "eni1npf0vf1"),
	}.begin(t)
	if onHost("enp1s0v1") || !inPod(sandboxID, "net1") || bridgeOf(t, "eni1npf0vf1") != "br-hw" {
		t.Error("the VF is not in the pod, or its representor not in the bridge")
	}
	r.end()
	if !onHost("enp1s0v1") || bridgeOf(t, "eni1npf0vf1") != "" {
		t.Error("the VF is not back, or its representor still in the bridge")
	}
	nothingBut(t, "/var/lib/cni/ovs-cni")
}

// A vDPA device on a VF of virtio, by the real vp_vdpa and vhost_vdpa; ovs and the switch are
// as above. Ovs is given the file before it is run, or it would have failed.
func TestExampleVDPA(t *testing.T) {
	needs(t, "vpvdpa", "nsim")
	path := node(t, "vpvdpa0")
	r := example{
		name: "vdpa", deviceID: "0000:02:00.1", settings: `{"cdiDevices": ["0000:02:00.0"]}`, binDir: switchDir(t),
		pool: `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"vpvdpa0","driver":"vhost","path":"/dev/vhost-vdpa-77","pci-address":"0000:02:00.1"}}`,
		info: fmt.Sprintf(`{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vpvdpa0", "driver": "vhost", "path": %q,
			"pci-address": "0000:02:00.1", "pf-pci-address": "0000:02:00.0", "representor-device": "eni1npf0vf0"}}`, path),
		nodes: []string{path},
	}.begin(t)
	if bridgeOf(t, "eni1npf0vf0") != "br-hw" {
		t.Error("the representor is not in the bridge")
	}
	r.end()
	if bridgeOf(t, "eni1npf0vf0") != "" {
		t.Error("the representor is still in the bridge")
	}
	same(t, "node of the vDPA device", node(t, "vpvdpa0"), path)
	nothingBut(t, "/var/lib/cni/ovs-cni")
}

// switchDir has this program in the place of devinfo, and makes the bridge br-hw.
func switchDir(t *testing.T) string {
	t.Helper()
	run(t, "ip", "link", "add", "br-hw", "type", "bridge")
	t.Cleanup(func() { run(t, "ip", "link", "del", "br-hw") })
	t.Setenv("STANDIN_SWITCH", "netdevsim/netdevsim1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(self, dir+"/devinfo"); err != nil {
		t.Fatal(err)
	}
	return dir
}

// devinfo is the plugin as cmd/devinfo assembles it, on the switch of netdevsim.
func devinfo() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	sys, err := sysfs.Open("/sys")
	if err != nil {
		log.Error("no /sys", "error", err)
		return 1
	}
	bootID, err := journal.BootID()
	if err != nil {
		log.Error("no boot ID", "error", err)
		return 1
	}
	node, nodeErr := config.LoadNode(os.Getenv("DEVINFO_NODE_CONFIG"))
	p := plugin.New(node, plugin.Doors{Sys: sys, Interfaces: link.NewKernel(sys.Files()), Switches: netdevsim(sys)}, bootID, os.Stdout, log)
	p.NodeError, p.Listen, p.Within = nodeErr, plugin.TakeSignals, os.Getenv(plugin.WithinEnv)
	return p.Run(os.Getenv, os.Stdin, os.Stderr)
}

// bridgeOf is the bridge that an interface is a port of; "" if it is none.
func bridgeOf(t *testing.T, name string) string {
	t.Helper()
	target, err := os.Readlink("/sys/class/net/" + name + "/master")
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// A VF of a ConnectX, from the captured host mlx5-legacy: no emulated card has RDMA. Devinfo
// and host-local are the real ones; sriov and rdma stand-ins, which move a dummy of the VF's
// name and take the RDMA device out of the tree, as the kernel does in exclusive mode, into
// which it is put really. The nodes are those that the machine has by these names, for soft
// RDMA.
func TestExampleRDMA(t *testing.T) {
	needs(t, "rxe")
	const vf = "0000:3b:00.2"
	tree := captured(t, "mlx5-legacy", "ens1f0np0", "ens1f0v0")
	run(t, "rdma", "system", "set", "netns", "exclusive")
	t.Cleanup(func() { run(t, "rdma", "system", "set", "netns", "shared") })
	r := example{
		name: "rdma", deviceID: vf, settings: `{"cdiDevices": ["0000:3b:00.0"], "sysfs": "` + tree + `"}`,
		pool:  poolPCI(vf),
		info:  `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2", "rdma-device": "mlx5_2", "pf-pci-address": "0000:3b:00.0"}}`,
		nodes: []string{"/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"},
	}.begin(t)
	rdma := tree + "/bus/pci/devices/" + vf + "/infiniband/mlx5_2"
	if onHost("ens1f0v0") || exists(rdma) {
		t.Error("the VF or its RDMA device is still on the host")
	}
	r.end()
	if !onHost("ens1f0v0") || !exists(rdma) {
		t.Error("the VF or its RDMA device is not back")
	}
	nothingBut(t, sriovDir)
}

// captured unpacks a captured host's /sys, and makes dummies in the place of interfaces.
func captured(t *testing.T, name string, interfaces ...string) (dir string) {
	t.Helper()
	h, err := hosttxt.Load("hosts/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := h.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	unreadable, _ := filepath.Glob(dir + "/devices/*/*/*/net/*/phys_*") // no file can fail with EOPNOTSUPP
	for _, attribute := range unreadable {
		_ = os.Remove(attribute)
	}
	t.Setenv("STANDIN_SYS", dir)
	for _, i := range interfaces {
		run(t, "ip", "link", "add", i, "type", "dummy")
		t.Cleanup(func() { run(t, "ip", "link", "del", i) })
	}
	return dir
}
