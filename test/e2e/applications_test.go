//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"devinfo-cni.io/test/testpmd"
)

// needsPrograms skips a test if the node lacks programs of these Debian packages.
func needsPrograms(t *testing.T, packages map[string]string) {
	t.Helper()
	for path, pack := range packages {
		if _, err := tryOnNode("", "test", "-x", path); err != nil {
			t.Skipf("the node has no %s: apt-get install --no-install-recommends %s", path, pack)
		}
	}
}

const testpmdPath = "/usr/bin/dpdk-testpmd" // of the package dpdk-dev

// exampleNetwork creates the network of an example.
func (s *space) exampleNetwork(name string) {
	s.Helper()
	network, _, _ := strings.Cut(content(s.T, "deploy/examples/"+name+".yaml"), "\n---\n")
	s.apply(network)
}

// application returns a pod in one network that runs testpmd of the node. The command is the
// documented one that contains a text.
func (s *space) application(name, network, text string) *corev1.Pod {
	s.Helper()
	pod := withNetworks(name, nil, network)
	c := &pod.Spec.Containers[0]
	c.Command = []string{"stdbuf", "-oL", "sh", "-c", documented(s.T, "docs", text), "sh"}
	c.Args = testpmd.Arguments(s.T)
	c.Env = []corev1.EnvVar{{Name: "PATH", Value: "/usr/bin"}}
	c.Stdin = true
	for _, dir := range []string{"/usr", "/lib", "/lib64", "/etc/alternatives"} {
		mount(pod, dir, dir, true)
	}
	return pod
}

// mount mounts a directory of the node into the first container.
func mount(pod *corev1.Pod, dir, at string, readOnly bool) {
	name := fmt.Sprintf("v%d", len(pod.Spec.Volumes))
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}}})
	c := &pod.Spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: at, ReadOnly: readOnly})
}

// container waits until a pod's only container runs and has been restarted at least this often. If restarts is 0 the
// container must not have been restarted.
func (s *space) container(pod string, restarts int32) (id string) {
	s.Helper()
	eventually(s.T, 3*time.Minute, func() error {
		p, err := cluster.client.CoreV1().Pods(s.name).Get(s.ctx, pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if list := p.Status.ContainerStatuses; len(list) != 1 || list[0].State.Running == nil || list[0].RestartCount < restarts {
			return fmt.Errorf("the container of pod %s does not run: %+v", pod, list)
		} else if restarts == 0 && list[0].RestartCount > 0 {
			s.Fatalf("the container of pod %s was started again: %+v", pod, list)
		}
		_, id, _ = strings.Cut(p.Status.ContainerStatuses[0].ContainerID, "//")
		return nil
	})
	return id
}

// prompt returns the prompt of testpmd in such a container.
func (s *space) prompt(pod string, restarts int32) *testpmd.Prompt {
	s.Helper()
	s.container(pod, restarts)
	return testpmd.Start(s.T, exec.Command("kubectl", "--kubeconfig="+cluster.kubeconfig, "-n", s.name, "attach", "-i", pod))
}

// kill kills a pod's container.
func (s *space) kill(pod string) {
	s.Helper()
	onNode(s.T, "crictl", "stop", "--timeout=0", s.container(pod, 0))
}

// socketDir returns the directory that the example's delegate has created for the only pod.
func (s *space) socketDir(pod string) (dir, name string) {
	s.Helper()
	s.container(pod, 0)
	sandbox := s.mustSandbox()
	return userspaceDir + sandbox[:12], sandbox[:12]
}

// dpdkMemif sends packets between a pod of the example memif and a switch. The switch is a pod that mounts the
// directories of all pods at another path. It is killed and comes back.
func dpdkMemif(t *testing.T, _ *nodeAgent) {
	needsPrograms(t, map[string]string{testpmdPath: "dpdk-dev"})
	const lines = "net_memif0"
	s := begin(t)
	s.exampleNetwork("memif")
	s.create(s.application("client", "memif", lines))
	dir, id := s.socketDir("client")
	s.declaring("switch", map[string]any{"type": "memif", "memif": map[string]any{
		"role": "master", "mode": "ethernet", "path": dir + "/memif-" + id + "-net1.sock",
	}})
	server := s.application("server", "switch", lines)
	mount(server, userspaceDir, "/sockets", false)
	s.create(server)
	app, peer := s.prompt("client", 0), s.prompt("server", 0)
	connect := func() {
		peer.Must(t, "show port info 0", "Link status: ")
		app.Tell("port stop 0", "port start 0")
	}
	connect()
	testpmd.Burst(t, app, peer)
	s.kill("server")
	peer = s.prompt("server", 1)
	connect()
	testpmd.Burst(t, peer, app)
}

// dpdkVhostUser sends packets between a pod of the example vhost-user and OVS-DPDK on the node, which returns them.
// The pod listens, so that OVS connects again after it was killed.
func dpdkVhostUser(t *testing.T, _ *nodeAgent) {
	needsPrograms(t, map[string]string{testpmdPath: "dpdk-dev", vswitchPath: "openvswitch-switch-dpdk"})
	s := begin(t)
	s.exampleNetwork("vhost-user")
	s.create(s.application("guest", "vhost-user", "net_virtio_user0,path=$DEVINFO_NET1_SOCKET"))
	dir, id := s.socketDir("guest")
	ovs := newVSwitch(t)
	ovs.start(t)
	ovs.vsctl(t, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
	ovs.vsctl(t, "add-port", "br0", "pod0", "--", "set", "interface", "pod0", "type=dpdkvhostuserclient", "options:vhost-server-path="+dir+"/"+id+"-net1")
	app := s.prompt("guest", 0)
	for round := range 2 {
		if round > 0 {
			ovs.restart(t)
		}
		ovs.ofctl(t, "del-flows", "br0")
		ovs.ofctl(t, "add-flow", "br0", "in_port=pod0,actions=in_port")
		testpmd.Burst(t, app)
		if ports := ovs.ofctl(t, "dump-ports", "br0", "pod0"); !carried.MatchString(ports) {
			t.Errorf("OVS has counted:\n%s", ports)
		}
	}
}

// carried matches OVS' statistics of a port that has received packets and sent them back.
var carried = regexp.MustCompile(`(?s)rx pkts=[1-9].*tx pkts=[1-9]`)

const vswitchPath = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"

// A vswitch is OVS-DPDK on the node, with its files in a directory of its own.
type vswitch struct {
	dir     string
	log     *os.File
	running *exec.Cmd
}

func (v *vswitch) database() string { return "unix:" + v.dir + "/db.sock" }

// newVSwitch runs the switch's database until the end of the test.
func newVSwitch(t *testing.T) *vswitch {
	t.Helper()
	dir := newDir(t)
	log, err := os.Create(filepath.Join(dir, "log"))
	must(t, err)
	v := &vswitch{dir: dir, log: log}
	onNode(t, "ovsdb-tool", "create", dir+"/conf.db", "/usr/share/openvswitch/vswitch.ovsschema")
	database := v.run(t, "ovsdb-server", dir+"/conf.db", "--remote=p"+v.database())
	t.Cleanup(func() {
		v.end(t, database, "ovsdb-server")
		log.Close()
		if said, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("OVS says:\n%s", said)
		}
	})
	v.vsctl(t, "--no-wait", "--retry", "init")
	v.vsctl(t, "--no-wait", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true", "other_config:per-port-memory=true",
		// Without --legacy-mem OVS adds --in-memory, which excludes --no-huge.
		"other_config:dpdk-extra=--no-pci --no-shconf --no-huge --legacy-mem -m 256")
	return v
}

// run starts a program of OVS on the node.
func (v *vswitch) run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := nodeCommand(append([]string{"env", "OVS_RUNDIR=" + v.dir}, args...)...)
	cmd.Stdout, cmd.Stderr = v.log, v.log
	must(t, cmd.Start())
	return cmd
}

// end kills a running program of OVS.
func (v *vswitch) end(t *testing.T, cmd *exec.Cmd, program string) {
	t.Helper()
	onNode(t, "kill", "-KILL", onNode(t, "pidof", program))
	_ = cmd.Wait()
}

func (v *vswitch) start(t *testing.T) {
	t.Helper()
	v.running = v.run(t, vswitchPath, v.database())
	t.Cleanup(func() { v.end(t, v.running, vswitchPath) })
}

// restart kills the switch, starts it again, and waits until it runs.
func (v *vswitch) restart(t *testing.T) {
	t.Helper()
	v.end(t, v.running, vswitchPath)
	v.running = v.run(t, vswitchPath, v.database())
}

func (v *vswitch) vsctl(t *testing.T, args ...string) {
	t.Helper()
	onNode(t, append([]string{"ovs-vsctl", "--timeout=60", "--db=" + v.database()}, args...)...)
}

// ofctl sends a command to the switch when it is ready.
func (v *vswitch) ofctl(t *testing.T, args ...string) (out string) {
	t.Helper()
	eventually(t, limit, func() (err error) {
		out, err = tryOnNode("", append([]string{"env", "OVS_RUNDIR=" + v.dir, "ovs-ofctl"}, args...)...)
		return err
	})
	return out
}
