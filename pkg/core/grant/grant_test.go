package grant_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// nodes returns a host's device nodes below /dev. All have major 1; the minor is the index in the list.
func nodes(names ...string) grant.Nodes {
	return func(path string) (cdispec.DeviceNode, error) {
		for n, name := range names {
			if path == "/dev/"+name {
				return cdispec.DeviceNode{Path: path, Type: "c", Major: 1, Minor: int64(n)}, nil
			}
		}
		return cdispec.DeviceNode{}, &fs.PathError{Op: "stat", Path: path, Err: fs.ErrNotExist}
	}
}

func on(t *testing.T, host string, devices ...string) grant.Granter {
	t.Helper()
	return grant.Granter{
		Sys: sysfs.New(capturetest.Load(t, host).Sys()), Settings: config.Node{AllowedDevices: devices},
		Nodes: nodes("vfio/vfio", "vfio/42", "infiniband/uverbs1", "infiniband/uverbs3", "infiniband/uverbs4", "infiniband/rdma_cm", "vhost-vdpa-1", "vhost-net", "net/tun", "infiniband/uverbs0", "infiniband/uverbs2"),
	}
}

func function(address string) *devinfo.Info {
	return &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: address}}
}

// own is the device of the pod's interface. other is a device without an interface in the pod.
var own, other = &discovery.Device{IsInterface: true}, &discovery.Device{}

// show lists a grant, one item a line.
func show(g grant.Grant) string {
	var lines []string
	for _, n := range g.Nodes {
		lines = append(lines, fmt.Sprintf("%s %s %d:%d", n.Path, n.Type, n.Major, n.Minor))
	}
	for _, m := range g.Mounts {
		lines = append(lines, fmt.Sprintf("%s on %s, read-only %v", m.Host, m.Container, m.ReadOnly))
	}
	for _, r := range g.Refusals {
		lines = append(lines, fmt.Sprintf("%s; %s", r.Error(), r.Remedy))
	}
	return strings.Join(lines, "\n")
}

func expect(t *testing.T, what string, g grant.Granter, info *devinfo.Info, found *discovery.Device, want ...string) {
	t.Helper()
	got, err := g.For(found, info)
	difftest.Must(t, err)
	difftest.Same(t, what, show(got), strings.Join(want, "\n"))
}

const notOurs = ": withheld: it has no interface in the pod's network namespace, and the node setting allowedDevices does not contain it; add "

func TestDeviceOfAnotherNodeGetsNothing(t *testing.T) {
	for what, info := range map[string]*devinfo.Info{
		"nothing": nil, "no type": {}, "no map": {Type: devinfo.TypePCI}, "no address": function("mlx5_core.sf.4"), "no function": function("0000:ff:00.0"),
		"no vDPA device": {Type: devinfo.TypeVDPA, VDPA: &devinfo.VDPA{ParentDevice: "vdpa99"}},
	} {
		expect(t, what, on(t, "mlx5-vdpa", "*"), info, own)
	}
	gone := function("0000:ff:00.0")
	gone.PCI.VhostNet = cdispec.VhostNet
	expect(t, "no function, with vhost-net", on(t, "mlx5-vdpa", "*"), gone, own)
}

func TestVFIONeedsBothDeviceNodes(t *testing.T) {
	const remedy = "; load the modules vfio and vfio_iommu_type1, and make sure that /dev is a devtmpfs"
	g := on(t, "mlx5-legacy", "*")
	expect(t, "group", g, function("0000:3b:00.4"), other, "/dev/vfio/vfio c 1:0", "/dev/vfio/42 c 1:1")
	got, err := g.For(other, function("0000:3b:00.4"))
	difftest.Must(t, err)
	difftest.Equal(t, got.IOMMUGroup, "42")
	g.Leased = func(id string) bool { return id != sysfs.ID("iommu", "42") }
	got, err = g.For(other, function("0000:3b:00.4"))
	difftest.Must(t, err)
	difftest.Contains(t, show(got), "the IOMMU group 42: withheld: the pod has no lease of it")
	g.Leased = nil
	g.Nodes = nodes("vfio/vfio")
	expect(t, "no group", g, function("0000:3b:00.4"), other, "the PCI function 0000:3b:00.4: withheld: /dev/vfio/42 does not exist"+remedy)
	g.Nodes = nodes("vfio/42")
	expect(t, "no container", g, function("0000:3b:00.4"), other, "the PCI function 0000:3b:00.4: withheld: /dev/vfio/vfio does not exist"+remedy)
	g.Nodes = func(string) (cdispec.DeviceNode, error) {
		return cdispec.DeviceNode{}, errors.New("it has mode -rw-r--r--")
	}
	expect(t, "a file", g, function("0000:3b:00.4"), other, "the PCI function 0000:3b:00.4: withheld: /dev/vfio/vfio: it has mode -rw-r--r--"+remedy)
}

// A VFIO device has a node of its own, beside that of its group or in place of it.
func TestVFIODeviceHasItsOwnNode(t *testing.T) {
	const dev = "-- sys/devices/pci0000:00/0000:00:05.0/0000:01:10.6/vfio-dev/vfio0/dev --\n511:0\n" // with CONFIG_VFIO_DEVICE_CDEV
	host, err := capturefile.Parse(append(capturetest.Text(t, "devinfo-try"), dev...))
	difftest.Must(t, err)
	g := on(t, "devinfo-try", "*")
	g.Sys = sysfs.New(host.Sys())
	info := function("0000:01:10.6")
	for has, want := range map[string]string{
		"iommu vfio/devices/vfio0":                   "/dev/iommu c 1:0\n/dev/vfio/devices/vfio0 c 1:1",
		"iommu vfio/devices/vfio0 vfio/vfio":         "/dev/iommu c 1:0\n/dev/vfio/devices/vfio0 c 1:1",
		"vfio/devices/vfio0 vfio/vfio vfio/15":       "/dev/vfio/vfio c 1:1\n/dev/vfio/15 c 1:2",
		"iommu vfio/devices/vfio0 vfio/vfio vfio/15": "/dev/vfio/vfio c 1:2\n/dev/vfio/15 c 1:3\n/dev/iommu c 1:0\n/dev/vfio/devices/vfio0 c 1:1",
	} {
		g.Nodes = nodes(strings.Fields(has)...)
		expect(t, has, g, info, other, strings.Split(want, "\n")...)
	}
}

func TestMissingNodeNamesItsModule(t *testing.T) {
	absent := func(device, node, module string) string {
		return "the " + device + ": withheld: /dev/" + node + " does not exist; load the module " + module
	}
	const vf = "PCI function 0000:17:00.2"
	g := on(t, "mlx5-infiniband", "0000:17:00.2")
	g.Nodes = nodes()
	info := function("0000:17:00.2")
	info.PCI.VhostNet = "/dev/vhost-net"
	expect(t, "function", g, info, own, absent(vf, "infiniband/uverbs2", "ib_uverbs"), absent(vf, "infiniband/issm2", "ib_umad"),
		absent(vf, "infiniband/umad2", "ib_umad"), absent(vf, "infiniband/rdma_cm", "rdma_ucm"), absent(vf, "vhost-net", "vhost_net"), absent(vf, "net/tun", "tun"))
	g = on(t, "mlx5-vdpa", "*")
	g.Nodes = nodes()
	expect(t, "vDPA", g, &devinfo.Info{Type: devinfo.TypeVDPA, VDPA: &devinfo.VDPA{ParentDevice: "vdpa:0000:65:00.3"}}, other, absent("vDPA device vdpa:0000:65:00.3", "vhost-vdpa-1", "vhost_vdpa"))
}

func TestVhostNetMustBeItsOwnNode(t *testing.T) {
	g := on(t, "i40e")
	info := function("0000:18:02.1")
	info.PCI.VhostNet = "/dev/vhost-net"
	expect(t, "it", g, info, own, "/dev/vhost-net c 1:7", "/dev/net/tun c 1:8")
	expect(t, "not own", g, info, other, "the PCI function 0000:18:02.1"+notOurs+`"0000:18:02.1" or "0000:18:00.0" or "*" to allowedDevices in the node settings`)
	info.PCI.VhostNet = "/dev/mem"
	expect(t, "another", g, info, own,
		"the PCI function 0000:18:02.1: withheld: its vhost-net is /dev/mem; only /dev/vhost-net is allowed: correct vhost-net in deviceInfo")
}

func TestVDPANodeComesFromSysfs(t *testing.T) {
	info := &devinfo.Info{Type: devinfo.TypeVDPA, VDPA: &devinfo.VDPA{ParentDevice: "vdpa:0000:65:00.3", Path: "/dev/mem", Address: "0000:ff:00.0"}}
	for _, device := range []string{"vdpa:0000:65:00.3", "pci/0000:65:00.3", "0000:65:00.3", "0000:65:00.0", "*"} {
		expect(t, device, on(t, "mlx5-vdpa", device), info, other, "/dev/vhost-vdpa-1 c 1:6")
	}
	expect(t, "another", on(t, "mlx5-vdpa", "pci/0000:65:00.0", "0000:ff:00.0", "0000:65:00.2"), info, other,
		"the vDPA device vdpa:0000:65:00.3"+notOurs+
			`"vdpa:0000:65:00.3" or "pci/0000:65:00.3" or "0000:65:00.3" or "0000:65:00.0" or "*" to allowedDevices in the node settings`)
	info.VDPA.ParentDevice = "vdpa4"
	expect(t, "on virtio", on(t, "mlx5-vdpa"), info, other)
}

const netns = "/run/netns/pod"

// finder returns a finder that must not look for representors: a slow PF must not delay the start of containers.
func finder(t *testing.T, host string) *discovery.Finder {
	f := checktest.Finder(t, capturetest.Load(t, host))
	f.Eswitches = struct{ hostdev.Eswitches }{}
	return f
}

// A device must be the interface's, or allowed by its name or that of its PF. The name of a PF with VFs does not allow it.
func TestDeviceMustBeOwnOrAllowed(t *testing.T) {
	const mlx5, vf, pf, other = "mlx5-legacy", "0000:3b:00.3", "0000:3b:00.0", "0000:3b:00.1"
	const rdma = "/dev/infiniband/uverbs3 c 1:3\n/dev/infiniband/uverbs4 c 1:4\n/dev/infiniband/rdma_cm c 1:5"
	const add = ` to allowedDevices in the node settings`
	for what, test := range map[string]struct {
		host, ifName, address string
		devices               []string
		want                  string
	}{
		"its own device":                   {mlx5, "net1", vf, nil, rdma},
		"another device than the file's":   {mlx5, "net1", other, nil, "the PCI function " + other + notOurs + `"0000:3b:00.1" or "*"` + add},
		"another device, which is allowed": {mlx5, "net1", other, []string{other}, "/dev/infiniband/uverbs1 c 1:2\n/dev/infiniband/rdma_cm c 1:5"},
		"a lower interface's": {mlx5, "net2", pf, []string{"*"}, "the PCI function " + pf + ", a PF with VFs: withheld: other interfaces use it too; " +
			"attach a device that only this pod uses; no setting allows a shared device"},
		"no interface":  {mlx5, "net7", vf, []string{other, "0000:3b:00.2", ""}, "the PCI function " + vf + notOurs + `"0000:3b:00.3" or "0000:3b:00.0" or "*"` + add},
		"in capitals":   {mlx5, "net7", vf, []string{"0000:3B:00.3"}, rdma},
		"a PF with VFs": {mlx5, "net7", pf, []string{pf}, "the PCI function " + pf + ", a PF with VFs" + notOurs + `"*"` + add},
		"no RDMA":       {"i40e", "net2", "0000:18:02.1", nil, ""},
		"the uverbs of another function than the interface's": {"erdma", "net1", "0000:00:08.0", nil, "/dev/infiniband/uverbs2 c 1:10\n/dev/infiniband/rdma_cm c 1:5"},
	} {
		got, err := on(t, test.host, test.devices...).ForInterface(finder(t, test.host), netns, test.ifName, function(test.address))
		difftest.Must(t, err)
		difftest.Same(t, what, show(got), test.want)
	}
}

func TestSubfunctionGetsItsOwnRDMANodes(t *testing.T) {
	g := on(t, "mlx5-switchdev")
	g.Nodes = nodes("infiniband/uverbs0", "infiniband/uverbs4", "infiniband/rdma_cm")
	found, err := checktest.Finder(t, capturetest.Load(t, "mlx5-switchdev")).Find(discovery.Target{DeviceIDs: []config.NamedID{{Key: "deviceID", ID: "mlx5_core.sf.4"}}, SubfunctionParent: true})
	difftest.Must(t, err)
	found.IsInterface = true
	expect(t, "found", g, found.Info, found, "/dev/infiniband/uverbs4 c 1:1", "/dev/infiniband/rdma_cm c 1:2")
	g.Leased = func(id string) bool { return id == sysfs.ID("auxiliary", "mlx5_core.sf.4") }
	expect(t, "leased", g, found.Info, found, "/dev/infiniband/uverbs4 c 1:1", "/dev/infiniband/rdma_cm c 1:2")
	found.SF = "mlx5_core.sf.99"
	expect(t, "gone", g, found.Info, found)
}

func TestForInterfaceNeedsNetworkNamespace(t *testing.T) {
	const host = "igb-sriov" // the capture has no network namespaces of pods
	got, err := on(t, host, "*").ForInterface(finder(t, host), netns, "net1", function("0000:01:10.0"))
	difftest.Is(t, err, link.ErrNoNetns)
	difftest.Equal(t, show(got), "")
}

func TestNodesBelowReadsMountedRoot(t *testing.T) {
	root := t.TempDir()
	difftest.Must(t, os.Symlink("/", filepath.Join(root, "host")), os.Symlink("/dev/null", filepath.Join(root, "link")))
	for _, mounted := range []string{"", "/", root + "/host"} {
		for path, want := range map[string]cdispec.DeviceNode{
			"/dev/null": {Type: "c", Major: 1, Minor: 3}, "/dev/zero": {Type: "c", Major: 1, Minor: 5}, "/dev/tty": {Type: "c", Major: 5}, root + "/link": {Type: "c", Major: 1, Minor: 3},
		} {
			stat, err := os.Stat(path)
			difftest.Must(t, err)
			raw := stat.Sys().(*syscall.Stat_t)
			want.Path, want.Perm, want.UID, want.GID = path, stat.Mode().Perm(), raw.Uid, raw.Gid
			got, err := grant.NodesBelow(mounted)(path)
			difftest.Must(t, err)
			difftest.Same(t, mounted+path, got, want)
		}
	}
	for _, path := range []string{root, "/", "/proc/self/status"} {
		_, err := grant.NodesBelow("")(path)
		difftest.Says(t, err, "it has mode ")
	}
	for mounted, path := range map[string]string{root: "/dev/null", "": "/dev/none"} {
		_, err := grant.NodesBelow(mounted)(path)
		difftest.Is(t, err, fs.ErrNotExist)
	}
}

// The owner of a node has no user ID in the namespace.
func TestUserNamespaceNeedsPermissionsForOthers(t *testing.T) {
	var g grant.Grant
	for n, perm := range []fs.FileMode{0o666, 0o660, 0o664, 0o662, 0o006} {
		g.Nodes = append(g.Nodes, cdispec.DeviceNode{Path: fmt.Sprint("/dev/", n), Type: "c", Perm: perm})
	}
	g.InUserNamespace()
	const remedy = " on the host; a pod in a user namespace needs read and write permission for other users; set its mode to 0666 on the host, or set hostUsers: true in the pod"
	difftest.Equal(t, strings.Split(show(g), "\n"), []string{"/dev/0 c 0:0", "/dev/4 c 0:0", "/dev/1: withheld: it has mode 0660" + remedy, "/dev/2: withheld: it has mode 0664" + remedy, "/dev/3: withheld: it has mode 0662" + remedy})
}

// A read that fails is an error, or changes nothing.
func TestFailedReadIsAnError(t *testing.T) {
	for _, c := range []struct {
		host  string
		info  *devinfo.Info
		found *discovery.Device
		allow []string
	}{
		{"mlx5-legacy", function("0000:3b:00.3"), own, nil},
		{"mlx5-legacy", function("0000:3b:00.3"), other, []string{"0000:3b:00.0"}},
		{"mlx5-legacy", function("0000:3b:00.0"), other, []string{"0000:3b:00.0"}},
		{"mlx5-switchdev", function("0000:03:00.0"), &discovery.Device{SF: "mlx5_core.sf.4", IsInterface: true}, nil},
		{"igb-sriov", function("0000:01:10.6"), own, nil},
		{"mlx5-vdpa", &devinfo.Info{Type: devinfo.TypeVDPA, VDPA: &devinfo.VDPA{ParentDevice: "vdpa:0000:65:00.3"}}, other, []string{"0000:65:00.0"}},
	} {
		want := ""
		capturetest.EachFailure(capturetest.Load(t, c.host).Sys(), func(sys fs.FS, failed *string) {
			g := on(t, c.host, c.allow...)
			g.Sys = sysfs.New(sys)
			got, err := g.For(c.found, c.info)
			if text := show(got); *failed == "" {
				want = text
			} else if err == nil && text != want || err != nil && !errors.Is(err, syscall.EIO) {
				t.Errorf("%s: reading %s fails: %v\n%s", c.host, *failed, err, text)
			}
		})
		difftest.Lacks(t, "want: "+want+".", "want: .")
	}
}
