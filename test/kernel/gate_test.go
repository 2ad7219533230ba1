package kernel_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"devinfo-cni.io/pkg/link/linktest"
)

// gateSpec is a CDI spec as cni-dra-driver writes it.
func gateSpec(program, netns string) string {
	hooks := fmt.Sprintf(`"hooks": [{"hookName": "createRuntime", "path": %q, "args": ["cni-dra-gate", %q, "claim ns/a"], "timeout": 10}], `, program, netns)
	return `{"cdiVersion": "0.3.0", "kind": "cni.dra.networking.x-k8s.io/claim", "devices": [{"name": "u1_x", "containerEdits": {` + hooks + `"env": ["A=b"]}}]}`
}

// The runtime keeps a container from the network of another sandbox; nobody else is there.
func TestAContainerIsNotMadeInAnotherNamespaceThanItsNetworks(t *testing.T) {
	needRunc(t)
	linktest.Run(t, func(t *testing.T) {
		devices(t)
		must(t, os.MkdirAll(cdiDir, 0o755))
		gate := filepath.Join(t.TempDir(), "cni-dra-gate")
		output(t, exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", gate, "devinfo-cni.io/cmd/cni-dra-gate"))
		pod, other := linktest.NewNetns(t), linktest.NewNetns(t)
		for _, c := range []struct {
			name, program, attached string
			users                   bool   // the container has a user namespace
			says                    string // of the runtime's error; "" = it is made
		}{
			{"its own", gate, pod, false, ""},
			{"its own, in a user namespace", gate, pod, true, ""},
			{"another's", gate, other, false, "cni-dra-driver: claim ns/a, in another sandbox than this container"},
			{"another's, in a user namespace", gate, other, true, "cni-dra-driver: claim ns/a, in another sandbox"},
			{"one that has ended", gate, "/run/netns/gone", false, "cni-dra-driver: claim ns/a, in a sandbox that has ended"},
			{"no program", gate + "-that-is-gone", pod, false, "no such file or directory"},
		} {
			t.Run(c.name, func(t *testing.T) {
				must(t, os.WriteFile(cdiDir+"/gate.json", []byte(gateSpec(c.program, c.attached)), 0o644))
				dir, config := ociSpec(t, pod, "A")
				if c.users {
					inUserNamespace(&config)
				}
				withCDI(t, &config, "cni.dra.networking.x-k8s.io/claim=u1_x")
				save(t, dir, config)
				run := exec.Command("runc", "--root", "/run/runc", "run", "--bundle", dir, "gate-"+filepath.Base(dir))
				got := finish(t, run)
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

// inUserNamespace gives a container one of its own, which a sysfs of the pod's is not for.
func inUserNamespace(config *oci.Spec) {
	config.Linux.Namespaces = append(config.Linux.Namespaces, oci.LinuxNamespace{Type: oci.UserNamespace})
	ids := []oci.LinuxIDMapping{{ContainerID: 0, HostID: 0, Size: 1000}}
	config.Linux.UIDMappings, config.Linux.GIDMappings = ids, ids
	config.Mounts = slices.DeleteFunc(config.Mounts, func(m oci.Mount) bool { return m.Type == "sysfs" || m.Type == "cgroup" })
}
