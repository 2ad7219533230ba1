// Package applications_test runs applications in pods without a cluster. A pod is a network namespace. The application
// gets only the file and the variables that devinfo provides, and starts with the commands in docs/applications.md.
package applications_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/undertest"
)

func TestMain(m *testing.M) { os.Exit(undertest.Main(func(string) int { return m.Run() })) }

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
	must(t, os.Symlink(os.Getenv(undertest.Key), "/run/plugins/devinfo"))
	must(t, os.WriteFile("/run/plugins/userspace", []byte(userspace), 0o755))
}

// A pod has a network namespace, and a directory with the file of net1 as devinfo-agent provides it.
type pod struct{ netns, dir string }

// attach creates a pod in the network of an example. change modifies the network.
func attach(t *testing.T, sandbox, example string, change *strings.Replacer) pod {
	t.Helper()
	text, err := os.ReadFile("../../deploy/examples/" + example + ".yaml")
	must(t, err)
	network, _, _ := strings.Cut(string(text), "\n---")
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
	facts := cdispec.Variables("net1", info, func(socket string) string { return socket })
	cmd.Env = append(append(os.Environ(), "DEVINFO_NET1=/var/run/k8s.cni.cncf.io/devinfo/net1.json"), facts...)
	return cmd
}

// byShell returns the shell command that follows a text in docs/applications.md.
func byShell(t *testing.T, after string) []string {
	t.Helper()
	return []string{"sh", "-c", difftest.Block(t, "../../docs/applications.md", "\n"+after, "sh"), "sh"}
}

var must = difftest.Must
