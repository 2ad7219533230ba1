package kernel_test

import (
	"os"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/agent/inject"
)

// A pod may mount the node's /run with mountPropagation Bidirectional. The runtime's mounts below it in the container
// then appear on the node, over the files of all pods.
func TestInjectedMountDoesNotAppearOnNode(t *testing.T) {
	injection(t, "", func(t *testing.T, a *inject.Plugin, pod string) {
		must(t, unix.Mount("", "/run", "", unix.MS_SHARED|unix.MS_REC, ""))
		dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "-")
		must(t, os.Mkdir(dir+"/rootfs/var", 0o755))
		must(t, os.Symlink("../run", dir+"/rootfs/var/run")) // like in most images
		spec.Linux.RootfsPropagation = "rshared"             // the setting of containerd and CRI-O for Bidirectional
		spec.Mounts = append(spec.Mounts, oci.Mount{Destination: "/run", Source: "/run", Type: "bind", Options: []string{"rbind", "rshared"}})
		adjust(t, a, pod, &spec)
		asked := false
		inContainer(t, dir, spec, func() {
			asked = true
			if _, err := os.Stat(infoDir + "/net-" + sandboxID + "_net1"); err != nil {
				t.Errorf("while the container runs: %v", err)
			}
		})
		if !asked {
			t.Error("the container did not run")
		}
	})
}

// chained returns devinfo's configuration after a plugin that has created net1.
func chained(netns, more string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", ` + more + `
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"},
		"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "` + netns + `"}]}}`
}

// warnings returns the messages of the warnings in the log.
func (a answer) warnings() string {
	var list []string
	for line := range strings.Lines(a.stderr) {
		if _, text, ok := strings.Cut(line, "level=WARN msg="); ok {
			list = append(list, strings.TrimSpace(text))
		}
	}
	return strings.Join(list, "\n")
}
