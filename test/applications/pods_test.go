// Package applications_test runs applications in pods without a cluster. A pod is a network namespace. The application
// gets only the file and the variables that devinfo provides, and starts with the documented commands.
package applications_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/testpmd"
	"devinfo-cni.io/test/undertest"
)

func TestMain(m *testing.M) { undertest.Temp(m) }

// needs skips a test if programs of these Debian packages are missing.
func needs(t *testing.T, packages map[string]string) {
	t.Helper()
	for name, pack := range packages {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: apt-get install --no-install-recommends %s", name, pack)
		}
	}
}

// userspace replaces userspace-cni. It has no data plane, and only creates the sandbox's directory.
const userspace = `#!/bin/sh
[ $CNI_COMMAND = VERSION ] || mkdir -p /var/lib/cni/usrspcni/$(echo $CNI_CONTAINERID | cut -c1-12)
echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}'
`

// stage sets up a node with devinfo and the replacement for userspace-cni.
func stage(t *testing.T) {
	t.Helper()
	must(t, unix.Mount("tmpfs", "/var/lib", "tmpfs", 0, "mode=0755"))
	must(t, os.Mkdir("/run/plugins", 0o755))
	must(t, os.Symlink(undertest.Plugin(t), "/run/plugins/devinfo"))
	must(t, os.WriteFile("/run/plugins/userspace", []byte(userspace), 0o755))
}

// A pod has a network namespace, and a directory with the file of net1 as devinfo-agent provides it.
type pod struct{ netns, dir string }

// attach creates a pod in the network of an example. change modifies the network.
func attach(t *testing.T, sandbox, example string, change *strings.Replacer) pod {
	t.Helper()
	network, _, _ := strings.Cut(difftest.Read(t, "../../deploy/examples/"+example+".yaml"), "\n---")
	var object struct{ Spec struct{ Config string } }
	must(t, yaml.Unmarshal([]byte(network), &object))
	list, err := libcni.NetworkConfFromBytes([]byte(change.Replace(object.Spec.Config)))
	must(t, err)
	p := pod{linktest.NewNetns(t), filepath.Join("/run/pods", sandbox)}
	file := "/var/run/k8s.cni.cncf.io/devinfo/cni/" + list.Name + "-" + sandbox + "_net1"
	_, err = libcni.NewCNIConfigWithCacheDir([]string{"/run/plugins"}, "/run/cache", nil).AddNetworkList(context.Background(), list, &libcni.RuntimeConf{
		ContainerID: sandbox, NetNS: p.netns, IfName: "net1",
		CapabilityArgs: map[string]any{"CNIDeviceInfoFile": file},
	})
	must(t, err)
	must(t, os.MkdirAll(p.dir, 0o755))
	must(t, os.Link(file, p.dir+"/net1.json"))
	return p
}

// inside returns a command in a container of the pod. It runs in the pod's network namespace, and the directory is
// mounted where the agent mounts it.
func (p pod) inside(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	const mount = `mkdir -p /run/k8s.cni.cncf.io/devinfo && mount --bind "$0" /run/k8s.cni.cncf.io/devinfo && exec "$@"`
	cmd := exec.Command("nsenter", append([]string{"--net=" + p.netns, "unshare", "--mount", "sh", "-c", mount, p.dir}, args...)...)
	info, err := devinfo.ReadFile(p.dir + "/net1.json")
	must(t, err)
	// The socket's directory is the same as on the node.
	facts := cdispec.Variables(cdispec.Variable("net1"), info, func(socket string) string { return socket })
	cmd.Env = append(append(os.Environ(), "DEVINFO_NET1=/var/run/k8s.cni.cncf.io/devinfo/net1.json"), facts...)
	return cmd
}

// byShell returns the documented shell command that contains a text.
func byShell(t *testing.T, text string) []string {
	t.Helper()
	return []string{"sh", "-c", difftest.Block(t, "../../docs", "sh", text), "sh"}
}

var must = difftest.Must

// start runs testpmd in a container of a pod. application precedes testpmd's own arguments.
func (p pod) start(t *testing.T, application []string) *testpmd.Prompt {
	t.Helper()
	args := append([]string{"stdbuf", "-oL"}, application...)
	return testpmd.Start(t, p.inside(t, append(args, testpmd.Arguments(t)...)...))
}

func TestPacketsReachOtherEnd(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		needs(t, map[string]string{"dpdk-testpmd": "dpdk-dev", "nsenter": "util-linux"})
		stage(t)
		const guest = "net_virtio_user0,path=${DEVINFO_NET1_SOCKET:?}"
		backEnd := func(end string) []string { // the switch
			return []string{"sh", "-c", `exec dpdk-testpmd --no-pci --vdev="net_vhost0,iface=$DEVINFO_NET1_SOCKET` + end + `" "$@"`, "sh"}
		}
		for n, c := range []struct {
			name, example        string
			listener, connecting []string
			// Commands for the connecting side after the listener's restart; nil = the connecting side is
			// restarted instead.
			reconnect []string
		}{
			{"memif", "memif", byShell(t, "net_memif0"), byShell(t, "net_memif0"), []string{"port stop 0", "port start 0"}},
			{"vhost-user, the guest listens", "vhost-user", byShell(t, guest), backEnd(",client=1"), nil},
			{"vhost-user, the switch listens", "vhost-user", backEnd(""), byShell(t, guest), nil},
		} {
			t.Run(c.name, func(t *testing.T) {
				sandbox := fmt.Sprintf("c0ffee%06d", n)
				listens := strings.NewReplacer("{containerID:12}", sandbox, `"role": "slave"`, `"role": "master"`)
				connects := strings.NewReplacer("{containerID:12}", sandbox, `"mode": "server"`, `"mode": "client"`)
				here, there := attach(t, sandbox, c.example, listens), attach(t, "other"+sandbox, c.example, connects)
				listener := here.start(t, c.listener)
				difftest.Eventually(t, "a socket of "+sandbox, func() bool {
					found, _ := filepath.Glob("/var/lib/cni/usrspcni/" + sandbox + "/*")
					return len(found) > 0
				})
				connecting := there.start(t, c.connecting)
				testpmd.Burst(t, listener, connecting)
				if c.reconnect == nil {
					connecting.Kill()
					connecting = there.start(t, c.connecting)
				} else {
					listener.Kill()
					listener = here.start(t, c.listener)
					listener.Must(t, "show port info 0", "Link status: ")
					connecting.Tell(c.reconnect...)
				}
				testpmd.Burst(t, connecting, listener)
			})
		}
	})
}

// OVS-DPDK on the node returns the packets of a guest that listens, also after it was killed.
func TestOpenVSwitchReturnsPackets(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		const vswitchd = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
		needs(t, map[string]string{"dpdk-testpmd": "dpdk-dev", vswitchd: "openvswitch-switch-dpdk", "nsenter": "util-linux"})
		stage(t)
		must(t, os.Mkdir("/run/ovs", 0o755))
		t.Setenv("OVS_RUNDIR", "/run/ovs")
		run := func(name string, args ...string) string {
			t.Helper()
			out, err := exec.Command(name, args...).CombinedOutput()
			if err != nil {
				t.Fatalf("%s %s: %v\n%s", name, args, err, out)
			}
			return string(out)
		}
		run("ovsdb-tool", "create", "/run/ovs/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
		testpmd.Run(t, exec.Command("ovsdb-server", "/run/ovs/conf.db", "--remote=punix:/run/ovs/db.sock"))
		run("ovs-vsctl", "--no-wait", "--retry", "init")
		// Without --legacy-mem OVS adds --in-memory, which excludes --no-huge.
		run("ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true", "other_config:per-port-memory=true",
			"other_config:dpdk-extra=--no-pci --no-shconf --no-huge --legacy-mem -m 256")
		const sandbox = "c0ffee000000"
		guest := attach(t, sandbox, "vhost-user", strings.NewReplacer()).start(t, byShell(t, "net_virtio_user0,path=${DEVINFO_NET1_SOCKET:?}"))
		run("ovs-vsctl", "--no-wait", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "--", "add-port", "br0", "pod0", "--",
			"set", "interface", "pod0", "type=dpdkvhostuserclient", "options:vhost-server-path=/var/lib/cni/usrspcni/"+sandbox+"/"+sandbox+"-net1")
		for range 2 {
			vswitch := testpmd.Run(t, exec.Command(vswitchd, "unix:/run/ovs/db.sock"))
			difftest.Eventually(t, "the switch is ready", func() bool { return exec.Command("ovs-ofctl", "del-flows", "br0").Run() == nil })
			run("ovs-ofctl", "add-flow", "br0", "in_port=pod0,actions=in_port")
			testpmd.Burst(t, guest)
			if ports := run("ovs-ofctl", "dump-ports", "br0", "pod0"); !carried.MatchString(ports) {
				t.Errorf("OVS has counted:\n%s", ports)
			}
			vswitch.Kill()
		}
	})
}

// carried matches OVS' statistics of a port that has received packets and sent them back.
var carried = regexp.MustCompile(`(?s)rx pkts=[1-9].*tx pkts=[1-9]`)

// Applications without a device here are replaced by a program that prints its arguments.
func TestDocumentedCommandsPassDevices(t *testing.T) {
	const (
		vf    = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.3", "rdma-device": "mlx5_2,mlx5_3"}}`
		vdpa  = `{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0"}}`
		vhost = `{"type": "vhost-user", "version": "1.1.0", "vhost-user": {"mode": "server", "path": "/run/vhost/s"}}`
		memif = `{"type": "memif", "version": "1.1.0", "memif": {"role": "slave", "mode": "ethernet", "path": "/run/memif/s"}}`
	)
	linktest.Run(t, func(t *testing.T) {
		needs(t, map[string]string{"nsenter": "util-linux"})
		for _, name := range []string{"dpdk-testpmd", "ibv_rc_pingpong", "qemu-system-x86_64", "vppctl"} {
			must(t, os.WriteFile("/run/"+name, []byte("#!/bin/sh\necho \"$@\"\n"), 0o755))
		}
		t.Setenv("PATH", "/run:"+os.Getenv("PATH"))
		for _, c := range []struct{ text, file, want string }{
			{"dpdk-testpmd -a", vf, "-a 0000:3b:00.3 -l 2"},
			{"net_virtio_user0,path=${DEVINFO_NET1_VDPA_PATH:?}", vdpa, "--no-pci --vdev=net_virtio_user0,path=/dev/vhost-vdpa-0 -l 2"},
			{"vfio-pci,host=", vf, "-device vfio-pci,host=0000:3b:00.3 -l 2"},
			{"memory-backend-memfd", vhost, "-m 1G -object memory-backend-memfd,id=mem,size=1G,share=on -numa node,memdev=mem " +
				"-chardev socket,id=net1,path=/run/vhost/s,server=on -netdev vhost-user,id=net1,chardev=net1 -device virtio-net-pci,netdev=net1 -l 2"},
			{"vhost-vdpa,id=", vdpa, "-netdev vhost-vdpa,id=net1,vhostdev=/dev/vhost-vdpa-0 -device virtio-net-pci,netdev=net1 -l 2"},
			{"create memif socket", memif, "create memif socket id 1 filename /run/memif/s\ncreate interface memif id 0 socket-id 1 slave\nset interface state memif1/0 up"},
			{"ibv_rc_pingpong", vf, "-d mlx5_2 -l 2"},
		} {
			p := pod{linktest.NewNetns(t), t.TempDir()}
			must(t, os.WriteFile(p.dir+"/net1.json", []byte(c.file), 0o644))
			got, err := p.inside(t, append(byShell(t, c.text), "-l", "2")...).CombinedOutput()
			if err != nil || string(got) != c.want+"\n" {
				t.Errorf("%s: %q (%v), want %q", c.text, got, err, c.want)
			}
		}
	})
}
