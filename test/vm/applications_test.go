//go:build vm

package vm_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	runtimespec "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// A container has what it was given, and of nodes nothing else but those that each container has.
type container struct {
	pod    string // network namespace
	env    []string
	mounts [][2]string // from, to
	nodes  []string
}

// adjusted is a container as NRI has it made.
func adjusted(pod string, a *api.ContainerAdjustment) (c container) {
	c.pod = pod
	for _, e := range a.GetEnv() {
		c.env = append(c.env, e.Key+"="+e.Value)
	}
	for _, m := range a.GetMounts() {
		c.mounts = append(c.mounts, [2]string{m.Source, m.Destination})
	}
	for _, d := range a.GetLinux().GetDevices() {
		c.nodes = append(c.nodes, d.Path)
	}
	return c
}

// madeOf is a container as CDI has it made.
func madeOf(pod string, spec *runtimespec.Spec) container {
	c := container{pod: pod, env: spec.Process.Env}
	for _, m := range spec.Mounts {
		c.mounts = append(c.mounts, [2]string{m.Source, m.Destination})
	}
	for _, d := range spec.Linux.Devices {
		c.nodes = append(c.nodes, d.Path)
	}
	return c
}

// containerMade makes what a container runtime does, with hugepages as by a volume.
const containerMade = `mkdir -p /run/dev; mount -t tmpfs dev /run/dev
for node in /dev/null /dev/zero /dev/urandom $NODES; do mkdir -p "/run$(dirname "$node")"; cp -a "$node" "/run$node"; done
mkdir /run/dev/hugepages; mount -t hugetlbfs none /run/dev/hugepages; mount --move /run/dev /dev
`

// command runs a command in it.
func (c container) command(args ...string) *exec.Cmd {
	script := "set -e\n" + containerMade
	for _, m := range c.mounts {
		script += fmt.Sprintf("mkdir -p %s; mount --bind %s %s\n", m[1], m[0], m[1])
	}
	cmd := exec.Command("ip", append([]string{"netns", "exec", c.pod, "sh", "-c", script + `exec "$@"`, "sh"}, args...)...)
	cmd.Env = append(append(os.Environ(), "NODES="+strings.Join(c.nodes, " ")), c.env...)
	return cmd
}

// start runs an application until the test has ended it.
func (c container) start(t *testing.T, args ...string) (end func()) {
	t.Helper()
	var out bytes.Buffer
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	ok(t, args[0], cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	end = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patient):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
	t.Cleanup(func() {
		end()
		if t.Failed() {
			t.Logf("%s\n%s", args, out.String())
		}
	})
	return end
}

// shown are the lines of docs/applications.md after a text, which start an application.
func shown(t *testing.T, after string) []string {
	t.Helper()
	_, section, found := strings.Cut(read(t, "applications.md"), "\n"+after)
	_, section, opened := strings.Cut(section, "```sh\n")
	lines, _, closed := strings.Cut(section, "```")
	if !found || !opened || !closed {
		t.Fatalf("docs/applications.md has no lines after %q", after)
	}
	return []string{"sh", "-c", lines, "sh"}
}

// swaps are testpmd's arguments to send all back, of few buffers.
var swaps = []string{"--", "--forward-mode=macswap", "--stats-period=5", "--total-num-mbufs=2048"}

// hugepages are for DPDK.
func hugepages(t *testing.T) {
	t.Helper()
	const file = "/proc/sys/vm/nr_hugepages"
	write(t, file, "64")
	t.Cleanup(func() { write(t, file, "0") })
}

const experiment = 0x88b5 // the protocol of frames for experiments

func frame(to, from net.HardwareAddr) []byte {
	return append(bytes.Join([][]byte{to, from, {experiment >> 8, experiment & 0xff}}, nil), make([]byte, 50)...)
}

// packets opens a socket to the frames of a protocol on an interface.
func packets(t *testing.T, name string, protocol uint16) (fd int) {
	t.Helper()
	link, err := net.InterfaceByName(name)
	ok(t, name, err)
	fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	ok(t, "socket", err)
	t.Cleanup(func() { unix.Close(fd) })
	ok(t, "timeout", unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}))
	ok(t, "bind", unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol>>8 | protocol<<8, Ifindex: link.Index}))
	return fd
}

func send(t *testing.T, fd int, frame []byte) {
	t.Helper()
	_, err := unix.Write(fd, frame)
	ok(t, "send", err)
}

// receive gives the next frame, if one comes soon.
func receive(fd int) (frame []byte, there bool) {
	frame = make([]byte, 2000)
	n, err := unix.Read(fd, frame)
	return frame[:max(n, 0)], err == nil
}

// answers waits until a frame that is sent out of an interface comes back from a MAC.
func answers(t *testing.T, name, address string) {
	t.Helper()
	here, _ := net.ParseMAC(mac(t, name))
	there, _ := net.ParseMAC(address)
	wire := packets(t, name, experiment)
	eventually(t, "a frame from "+address, func() bool {
		send(t, wire, frame(there, here))
		got, _ := receive(wire)
		return bytes.Equal(got, frame(here, there))
	})
}

// Two containers, each with the nodes of its RDMA device, and one without. Devinfo reads the
// captured /sys of a ConnectX, whose VFs have the names and numbers that soft RDMA has here: that
// stays on the host, which the kernel's shared mode allows. The second VF has two devices.
func TestVerbsBetweenTwoPods(t *testing.T) {
	needs(t, "rxe")
	captured(t, "mlx5-legacy", "ens1f0v0")
	settings := filepath.Join(t.TempDir(), "node.json")
	write(t, settings, fmt.Sprintf(`{"injectNodes": true, "cdiDevices": ["0000:3b:00.0"], "sysfs": %q}`, os.Getenv("STANDIN_SYS")))
	t.Setenv("DEVINFO_NODE_CONFIG", settings)
	run(t, "rdma", "link", "del", "siw0")
	t.Cleanup(func() { run(t, "rdma", "link", "add", "siw0", "type", "siw", "netdev", "siwveth0") })
	for _, rdma := range [][2]string{{"mlx5_2", "siwveth0"}, {"mlx5_9", "siwveth1"}, {"mlx5_10", "ens1f0v0"}} {
		run(t, "rdma", "link", "add", rdma[0], "type", "rxe", "netdev", rdma[1])
		t.Cleanup(func() { run(t, "rdma", "link", "del", rdma[0]) })
	}
	agent, n := nri(t), newNetwork(t, "rdma", `[`+devinfoLast+`]`)
	var pods [2]container
	for i, vf := range []string{"0000:3b:00.2", "0000:3b:00.3"} {
		a := n.attachment(fmt.Sprint("pod", i), "net1", vf)
		if _, err := a.tryAdd(); err != nil {
			t.Fatal(fullText(err))
		}
		t.Cleanup(a.del)
		answer, err := agent.CreateContainer(t.Context(), &adaptation.CreateContainerRequest{
			Pod:       &api.PodSandbox{Id: a.rt.ContainerID, Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: a.rt.NetNS}}}},
			Container: &api.Container{Id: a.rt.ContainerID, PodSandboxId: a.rt.ContainerID},
		})
		ok(t, "container", err)
		pods[i] = adjusted(a.rt.ContainerID, answer.GetAdjust())
	}
	// By which they tell each other their queue pairs.
	run(t, "ip", "-n", "pod0", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", "pod1")
	for i := range pods {
		run(t, "ip", "-n", pods[i].pod, "addr", "add", fmt.Sprintf("192.0.2.%d/24", i+1), "dev", "eth0")
		run(t, "ip", "-n", pods[i].pod, "link", "set", "eth0", "up")
	}
	pingpong := append(shown(t, "`rdma-device`"), "-g", "0", "-n", "20")
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
	if !strings.Contains(string(out), "20 iters in") {
		t.Errorf("got %s", out)
	}
}
