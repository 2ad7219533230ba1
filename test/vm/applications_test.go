//go:build vm

package vm_test

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/testpmd"
)

// A container has the given environment and mounts. Besides the device nodes of every container it has only the given
// ones.
type container struct {
	pod    string // network namespace
	env    []string
	mounts []string // FROM:TO
	nodes  []string
}

// adjusted returns a container with an adjustment by NRI.
func adjusted(pod string, a *api.ContainerAdjustment) (c container) {
	c.pod = pod
	for _, e := range a.GetEnv() {
		c.env = append(c.env, e.Key+"="+e.Value)
	}
	for _, m := range a.GetMounts() {
		c.mounts = append(c.mounts, m.Source+":"+m.Destination)
	}
	for _, d := range a.GetLinux().GetDevices() {
		c.nodes = append(c.nodes, d.Path)
	}
	return c
}

// containerMade is a script that sets up a container as a runtime does, with hugepages as from a volume. All mounts
// are below /var/run. Locked memory is unlimited, as in the units of containerd and CRI-O, because vhost_vdpa ignores
// capabilities.
const containerMade = `set -e
ulimit -l unlimited
mkdir -p /run/dev /run/new
mount -t tmpfs dev /run/dev
mount -t tmpfs run /run/new
for node in /dev/null /dev/zero /dev/urandom $NODES; do mkdir -p "/run$(dirname "$node")"; cp -a "$node" "/run$node"; done
for mount in $MOUNTS; do
  from=${mount%:/*} to=/run/new${mount#*:/var/run}
  mkdir -p "$(dirname "$to")"
  if [ -d "$from" ]; then mkdir "$to"; else touch "$to"; fi
  mount --bind "$from" "$to"
done
mkdir /run/dev/hugepages
mount -t hugetlbfs none /run/dev/hugepages
mount --move /run/dev /dev
mount --move /run/new /run
exec "$@"`

// command returns a command in the container.
func (c container) command(args ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", c.pod, "sh", "-c", containerMade, "sh"}, args...)...)
	cmd.Env = append(append(os.Environ(), "NODES="+strings.Join(c.nodes, " "), "MOUNTS="+strings.Join(c.mounts, " ")), c.env...)
	return cmd
}

// start runs an application in the container until the end of the test.
func (c container) start(t *testing.T, args ...string) *testpmd.Application {
	t.Helper()
	return testpmd.Run(t, c.command(args...))
}

// shown returns the documented shell command that contains a text.
func shown(t *testing.T, text string) []string {
	t.Helper()
	return []string{"sh", "-c", difftest.Block(t, "docs", "sh", text), "sh"}
}

// swaps are testpmd's arguments for sending all packets back with few buffers.
var swaps = []string{"--", "--forward-mode=macswap", "--stats-period=5", "--total-num-mbufs=2048"}

// hugepages reserves hugepages for DPDK.
func hugepages(t *testing.T) {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	write(t, file, "64")
	t.Cleanup(func() { write(t, file, "0") })
}

const experiment = 0x88b5 // the protocol number for experiments

// answers waits until a frame that is sent through an interface comes back from a MAC address.
func answers(t *testing.T, name, address string) {
	t.Helper()
	link, err := net.InterfaceByName(name)
	must(t, err)
	there, err := net.ParseMAC(address)
	must(t, err)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}))
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: experiment>>8 | experiment<<8&0xffff, Ifindex: link.Index}))
	frame := func(to, from net.HardwareAddr) []byte {
		return append(slices.Concat(to, from, []byte{experiment >> 8, experiment & 0xff}), make([]byte, 50)...)
	}
	eventually(t, "a frame from "+address, func() bool {
		_, err := unix.Write(fd, frame(there, link.HardwareAddr))
		must(t, err)
		got := make([]byte, 2000)
		n, _ := unix.Read(fd, got)
		return bytes.Equal(got[:max(n, 0)], frame(link.HardwareAddr, there))
	})
}

// injected returns a container in the pod of an attachment.
func (a *attachment) injected(agent *adaptation.Adaptation) container {
	a.t.Helper()
	a.attach()
	a.t.Cleanup(a.del)
	return adjusted(a.rt.ContainerID, a.container(agent))
}

// injecting connects an agent that gives containers the device nodes of a device.
func injecting(t *testing.T, device string) *adaptation.Adaptation {
	t.Helper()
	settings := filepath.Join(t.TempDir(), "node.json")
	write(t, settings, fmt.Sprintf(`{"injectDeviceNodes": true, "allowedDevices": [%q], "sysfs": %q}`, device, cmp.Or(os.Getenv("STANDIN_SYS"), "/sys")))
	t.Setenv("DEVINFO_NODE_CONFIG", settings)
	return nri(t)
}

// The simulated device returns frames to its own MAC address, so 32 packets circulate without end.
func TestDPDKSendsPacketsOnVDPA(t *testing.T) {
	needs(t, "vdpasim")
	hugepages(t)
	pod := newNetwork(t, "vdpa", `[`+devinfoLast+`]`).attachment("pod1", "net1", "vdpa0").injected(injecting(t, "vdpa0"))
	dpdk := pod.start(t, append(shown(t, "net_virtio_user0,path=${DEVINFO_NET1_VDPA_PATH:?}"), "--", "--forward-mode=io", "--tx-first", "--eth-peer=0,02:00:00:00:0d:00",
		"--stats-period=1", "--total-num-mbufs=2048")...)
	arrived := regexp.MustCompile(`RX-packets: [1-9]`)
	eventually(t, "packets arrive", func() bool { return arrived.MatchString(dpdk.String()) })
	dpdk.End()
}

// Two containers have the device nodes of an RDMA device each, and one container has none. Devinfo reads the captured
// /sys of a ConnectX. The soft RDMA devices here have the names and numbers of its VFs. They stay on the host, as the
// kernel's shared mode permits. The second VF has two RDMA devices.
func TestRDMAWorksBetweenTwoPods(t *testing.T) {
	needs(t, "rxe")
	captured(t, "mlx5-legacy", "ens1f0v0")
	run(t, "rdma", "link", "del", "siw0")
	t.Cleanup(func() { run(t, "rdma", "link", "add", "siw0", "type", "siw", "netdev", "siwveth0") })
	for _, rdma := range [][2]string{{"mlx5_2", "siwveth0"}, {"mlx5_9", "siwveth1"}, {"mlx5_10", "ens1f0v0"}} {
		run(t, "rdma", "link", "add", rdma[0], "type", "rxe", "netdev", rdma[1])
		t.Cleanup(func() { run(t, "rdma", "link", "del", rdma[0]) })
	}
	agent, n := injecting(t, "0000:3b:00.0"), newNetwork(t, "rdma", `[`+devinfoLast+`]`)
	pods := []container{n.attachment("pod0", "net1", "0000:3b:00.2").injected(agent), n.attachment("pod1", "net1", "0000:3b:00.3").injected(agent)}
	// The interfaces that the programs use to exchange their queue pairs.
	run(t, "ip", "-n", "pod0", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", "pod1")
	for i := range pods {
		run(t, "ip", "-n", pods[i].pod, "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "eth0")
		run(t, "ip", "-n", pods[i].pod, "link", "set", "eth0", "up")
	}
	pingpong := append(shown(t, "ibv_rc_pingpong"), "-g", "0", "-n", "20")
	pods[0].start(t, pingpong...)
	connect := append(pingpong, "192.0.2.1")
	bare := pods[1]
	bare.nodes = nil
	if out, err := bare.command(connect...).CombinedOutput(); err == nil || !strings.Contains(string(out), "mlx5_9") {
		t.Errorf("without nodes: %v, %s", err, out)
	}
	var out []byte
	eventually(t, "the other one listens", func() bool {
		var err error
		out, err = pods[1].command(connect...).CombinedOutput()
		return err == nil || !strings.Contains(string(out), "Couldn't connect")
	})
	difftest.Contains(t, string(out), "20 iters in")
}
