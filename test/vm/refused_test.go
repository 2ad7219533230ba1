//go:build vm

package vm_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"

	"devinfo-cni.io/pkg/host/capturefile"
)

// A use is one way in which somebody uses a function.
type use struct {
	name, function string
	begin, end     string           // of sh
	by             func(*testing.T) // until the end of the test
	want           string
}

const podResources = "/var/lib/kubelet/pod-resources/kubelet.sock"

func uses(vfio string) []use {
	const vf = "0000:41:10.0"
	return []use{
		{name: "address", function: vf, begin: "ip addr add 192.0.2.1/24 dev enp65s0v0", end: "ip addr flush dev enp65s0v0", want: "has the address"},
		{name: "route", function: vf, begin: "ip link set enp65s0v0 up && ip route add 198.51.100.0/24 dev enp65s0v0", end: "ip route flush dev enp65s0v0; ip link set enp65s0v0 down", want: "has a route"},
		{name: "macvlan", function: vf, begin: "ip link add link enp65s0v0 name up0 type macvlan", end: "ip link del up0", want: "up0 is on enp65s0v0"},
		{name: "macvlan elsewhere", function: vf, begin: "ip netns add other && ip link add link enp65s0v0 name up0 netns other type macvlan", end: "ip netns del other", want: "macvlan up0"},
		{name: "in a namespace", function: vf, begin: "ip netns add other && ip link set enp65s0v0 netns other", end: "ip -n other link set enp65s0v0 netns 1; ip netns del other", want: "in another one"},
		{name: "lock of sriov-cni", function: vf, begin: "ip netns add other && mkdir -p " + sriovDir + "/pci && echo -n /run/netns/other >" + sriovDir + "/pci/" + vf, end: "ip netns del other; rm -rf " + sriovDir, want: vf + " cannot be used"},
		{name: "lease", function: "0000:01:10.6", by: func(t *testing.T) { // a function without an interface that deviceID names
			a := newNetwork(t, "device", `[`+devinfoLast+`]`).attachment("pod1", "net1", "0000:01:10.6")
			a.attach()
			t.Cleanup(a.del)
		}, want: "devinfo has a lease of it"},
		{name: "kubelet that is silent", function: vf, begin: "mkdir -p " + filepath.Dir(podResources) + " && : >" + podResources, end: "rm " + podResources, want: "cannot tell which functions pods have"},
		{name: "open VFIO device", function: "0000:01:10.6", by: opened(vfio), want: "has its device node open"},
		{name: "open vDPA device", function: "0000:02:00.1", by: func(t *testing.T) { opened(node(t, "vpvdpa0"))(t) }, want: "has its device node open"},
		{name: "PF with VFs", function: "0000:41:00.0", want: "lose their PF"},
		{name: "no function", function: "0000:7f:00.0", want: "no such network function"},
		{name: "PF named once", function: "0000:41:00.0", begin: "echo 0 >/sys/bus/pci/devices/0000:41:00.0/sriov_numvfs", want: "name it twice"},
	}
}

func opened(path string) func(*testing.T) {
	return func(t *testing.T) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		must(t, err)
		t.Cleanup(func() { f.Close() })
	}
}

func TestTryRefusesWhatIsUsed(t *testing.T) {
	needs(t, "igb", "vpvdpa")
	_ = kills(t)
	t.Cleanup(func() { vfsBack(t) })
	for _, u := range uses(group(t, "0000:01:10.6")) {
		t.Run(u.name, func(t *testing.T) {
			if u.end != "" {
				t.Cleanup(func() { run(t, "sh", "-c", u.end) })
			}
			if u.begin != "" {
				run(t, "sh", "-c", u.begin)
			}
			if u.by != nil {
				u.by(t)
			}
			if status, said := try(t, nil, "--yes", "-o", t.TempDir()+"/report.txtar", u.function); status != 2 || !strings.Contains(said, u.want) {
				t.Errorf("exit status %d, want 2 and %q:\n%s", status, u.want, said)
			}
		})
	}
}

// A function that somebody begins to use is left as it is, after the question and while another one is tried, also by
// --restore if the run is then killed.
func TestTryLeavesWhatIsUsedSince(t *testing.T) {
	needs(t, "igb")
	t.Cleanup(func() { vfsBack(t) })
	waits := defect{plugin: "devinfo", script: `grep -q 0000:41:10.2 /tmp/stdin.$$ && until [ -e /tmp/go ]; do sleep .1; done; real`}
	for _, test := range []struct {
		name, until string
		more        []string // arguments
		goOn        func(cmd *exec.Cmd, answer io.Writer) error
		status      int // -1 = it is killed
		want        string
	}{
		{"answered", "Go on?", nil, func(_ *exec.Cmd, answer io.Writer) error {
			_, err := io.WriteString(answer, "y\n")
			return err
		}, 1, "somebody uses it now"},
		{"another one tried", "\n0000:41:10.2  ", []string{"--yes", "0000:41:10.2"}, func(*exec.Cmd, io.Writer) error {
			return os.WriteFile("/tmp/go", nil, 0o600)
		}, 0, ""},
		{"killed", "\n0000:41:10.2  ", []string{"--yes", "0000:41:10.2"}, func(cmd *exec.Cmd, _ io.Writer) error {
			return cmd.Process.Kill()
		}, -1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"-o", t.TempDir() + "/report.txtar", "--only", "without"}, test.more...)
			cmd := exec.Command(tryProgram, append(args, "0000:41:10.0")...)
			cmd.Env = append(os.Environ(), "DEVINFO_TRY_PLUGINS="+waits.plugins(t))
			answer, err := cmd.StdinPipe()
			must(t, err)
			out, err := cmd.StdoutPipe()
			must(t, err, cmd.Start())
			var said bytes.Buffer
			for !strings.Contains(said.String(), test.until) {
				if _, err := io.CopyN(&said, out, 1); err != nil {
					t.Fatalf("%v: %s", err, said.String())
				}
			}
			run(t, "sh", "-c", "ip link add link enp65s0v0 name up0 type macvlan && ip link set enp65s0v0 mtu 1400 && ip addr add 192.0.2.1/24 dev enp65s0v0")
			t.Cleanup(func() {
				run(t, "sh", "-c", "rm -f /tmp/go; ip link del up0; ip link set enp65s0v0 mtu 1500; ip addr flush dev enp65s0v0")
			})
			must(t, test.goOn(cmd, answer))
			_, _ = io.Copy(&said, out)
			_ = cmd.Wait()
			if status := cmd.ProcessState.ExitCode(); status != test.status || !strings.Contains(said.String(), test.want) {
				t.Errorf("exit status %d:\n%s", status, said.String())
			}
			if test.status < 0 {
				if status, said := try(t, nil, "--restore"); status != 0 {
					t.Errorf("--restore: %d %s", status, said)
				}
			}
			if now := run(t, "ip", "addr", "show", "dev", "enp65s0v0"); !strings.Contains(now, "mtu 1400") || !strings.Contains(now, "192.0.2.1") || !onHost("up0") {
				t.Errorf("it is changed: %s", now)
			}
		})
	}
}

// The job's command runs in a mount namespace of its own, with the node's files at /host.
func TestJobRunsTry(t *testing.T) {
	needs(t, "igb")
	_ = kills(t)
	t.Cleanup(func() { vfsBack(t) })
	var job struct {
		Spec struct {
			Template struct {
				Spec struct{ Containers []struct{ Command []string } }
			}
		}
	}
	must(t, yaml.Unmarshal([]byte(read(t, "job.yaml")), &job))
	command := job.Spec.Template.Spec.Containers[0].Command
	script := strings.Replace(command[2], "sleep 600", "", 1)
	program, err := os.ReadFile(tryProgram)
	must(t, err, os.MkdirAll("/var/lib/devinfo-try", 0o700), os.WriteFile("/var/lib/devinfo-try/program", program, 0o600))
	before := portrait(t, "0000:41:10.0", "enp65s0", 0)
	cmd := exec.Command("sh", "-c", "mount -o rbind / /host && "+script)
	cmd.Env = append(os.Environ(), "FUNCTIONS=0000:41:10.0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // also makes all mounts private
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, said)
	}
	_, err = capturefile.Load("/var/lib/devinfo-try/report.txtar")
	must(t, err)
	same(t, "the VF", portrait(t, "0000:41:10.0", "enp65s0", 0), before)
	must(t, os.RemoveAll("/var/lib/devinfo-try"))
}
