package kernel_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	"tags.cncf.io/container-device-interface/pkg/cdi"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

// onVFIO is the captured host's VF on vfio-pci, in IOMMU group 15.
const (
	onVFIO     = "0000:01:10.6"
	onVFIOFile = `{
  "type": "pci",
  "version": "1.1.0",
  "pci": {
    "pci-address": "0000:01:10.6",
    "pf-pci-address": "0000:01:00.0"
  }
}
`
	cdiDevice = "devinfo-cni.io/attachment=6e0c-net1"
)

// devices replaces /dev. The device nodes of VFIO have the numbers of devices that can be read.
func devices(t *testing.T) {
	t.Helper()
	must(t, unix.Mount("tmpfs", "/dev", "tmpfs", 0, "mode=0755"))
	for path, number := range map[string]uint64{
		"/dev/null": unix.Mkdev(1, 3), "/dev/zero": unix.Mkdev(1, 5), "/dev/full": unix.Mkdev(1, 7), "/dev/random": unix.Mkdev(1, 8),
		"/dev/urandom": unix.Mkdev(1, 9), "/dev/tty": unix.Mkdev(5, 0), "/dev/vfio/vfio": unix.Mkdev(1, 5), "/dev/vfio/15": unix.Mkdev(1, 9),
	} {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755), unix.Mknod(path, unix.S_IFCHR|0o666, int(number)))
		must(t, os.Chmod(path, 0o666)) // independent of the umask
	}
}

// ociSpec returns a container as "runc spec" describes it, in the pod's network namespace and with the probe as its
// program. The spec is not saved yet.
func ociSpec(t *testing.T, pod string, args ...string) (string, oci.Spec) {
	t.Helper()
	dir := t.TempDir()
	difftest.Write(t, dir+"/rootfs/probe", read(t, undertest.Once(t, "", "devinfo-cni.io/test/kernel/probe")+"/probe"), 0o755)
	must(t, exec.Command("runc", "spec", "--bundle", dir).Run())
	var config oci.Spec
	must(t, json.Unmarshal([]byte(read(t, dir+"/config.json")), &config))
	config.Process.Terminal, config.Process.Args = false, append([]string{"/probe"}, args...)
	config.Root.Readonly = false
	inNetns(&config, pod)
	return dir, config
}

// inNetns sets a container's network namespace; "" = a new one.
func inNetns(config *oci.Spec, path string) {
	for n := range config.Linux.Namespaces {
		if config.Linux.Namespaces[n].Type == oci.NetworkNamespace {
			config.Linux.Namespaces[n].Path = path
		}
	}
}

// inUserNamespace gives a container a new user namespace. Its root is the user first of the machine.
func inUserNamespace(config *oci.Spec, first uint32) {
	config.Linux.Namespaces = append(config.Linux.Namespaces, oci.LinuxNamespace{Type: oci.UserNamespace})
	ids := []oci.LinuxIDMapping{{ContainerID: 0, HostID: first, Size: 65536}}
	config.Linux.UIDMappings, config.Linux.GIDMappings = ids, ids
}

func withCDI(t *testing.T, config *oci.Spec, device string) {
	t.Helper()
	cache, err := cdi.NewCache(cdi.WithSpecDirs(cdiDir), cdi.WithAutoRefresh(false))
	must(t, err)
	_, err = cache.InjectDevices(config, device)
	must(t, err)
}

// runc returns the command that runs a container.
func runc(t *testing.T, dir string, config oci.Spec) *exec.Cmd {
	t.Helper()
	writeJSON(t, dir+"/config.json", config)
	return exec.Command("runc", "--root", "/run/runc", "run", "--bundle", dir, "devinfo-"+filepath.Base(dir))
}

// needRunc skips a test if containers cannot be run.
func needRunc(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("device nodes can only be made by the machine's root")
	}
	if _, err := exec.LookPath("runc"); err != nil {
		t.Skip("runc is not installed: apt-get install runc")
	}
}

const podUID = "CNI_ARGS=K8S_POD_UID=6e0c"

// gateSpec returns a CDI spec like cni-dra-driver's.
func gateSpec(program, netns string) string {
	hooks := fmt.Sprintf(`"hooks": [{"hookName": "createRuntime", "path": %q, "args": ["cni-dra-gate", %q, "claim ns/a"], "timeout": 10}], `, program, netns)
	return `{"cdiVersion": "0.3.0", "kind": "cni.dra.networking.x-k8s.io/claim", "devices": [{"name": "u1_x", "containerEdits": {` + hooks + `"env": ["A=b"]}}]}`
}

// The runtime itself refuses a container outside the sandbox with the network, so no agent has to run.
func TestGateRefusesContainerInOtherNetworkNamespace(t *testing.T) {
	needRunc(t)
	linktest.Run(t, func(t *testing.T) {
		devices(t)
		must(t, os.MkdirAll(cdiDir, 0o755))
		gate := undertest.Once(t, "", "devinfo-cni.io/cmd/cni-dra-gate") + "/cni-dra-gate"
		pod, other := linktest.NewNetns(t), linktest.NewNetns(t)
		for _, c := range []struct {
			name, program, attached string
			users                   bool   // the container has a user namespace
			says                    string // part of the runtime's error; "" = the container is created
		}{
			{"its own", gate, pod, false, ""},
			{"its own, in a user namespace", gate, pod, true, ""},
			{"another's", gate, other, false, "cni-dra-driver: claim ns/a, in a different sandbox"},
			{"another's, in a user namespace", gate, other, true, "cni-dra-driver: claim ns/a, in a different sandbox"},
			{"one that has ended", gate, "/run/netns/gone", false, "cni-dra-driver: claim ns/a, in a sandbox that has ended"},
			{"no program", gate + "-that-is-gone", pod, false, "no such file or directory"},
			{"its pod's", gate, "pod/6e0c", false, ""},
			{"another pod's", gate, "pod/6e0d", true, "cni-dra-driver: claim ns/a, not by the pod of this container"},
		} {
			t.Run(c.name, func(t *testing.T) {
				must(t, os.WriteFile(cdiDir+"/gate.json", []byte(gateSpec(c.program, c.attached)), 0o644))
				dir, config := ociSpec(t, pod, "A")
				config.Annotations = map[string]string{"io.kubernetes.cri.sandbox-uid": "6e0c"}
				if c.users { // a user namespace cannot mount the sysfs of the pod's network namespace
					inUserNamespace(&config, 0)
					config.Mounts = slices.DeleteFunc(config.Mounts, func(m oci.Mount) bool { return m.Type == "sysfs" || m.Type == "cgroup" })
				}
				withCDI(t, &config, "cni.dra.networking.x-k8s.io/claim=u1_x")
				got := finish(t, runc(t, dir, config))
				if c.says == "" {
					got.ok(t)
					return
				}
				if got.exit == 0 || !strings.Contains(got.stderr, c.says) {
					t.Errorf("exit code %d, %s", got.exit, got.stderr)
				}
			})
		}
	})
}
