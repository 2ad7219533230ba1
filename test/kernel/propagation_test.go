package kernel_test

import (
	"os"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link/linktest"
)

// A pod that mounts the node's /run with mountPropagation Bidirectional: what the runtime mounts
// below it in the container it mounts on the node, over the files of all pods.
func TestAnInjectedMountDoesNotReachTheNode(t *testing.T) {
	needRunc(t)
	linktest.Run(t, func(t *testing.T) {
		a, pod := injection(t)
		must(t, unix.Mount("", "/run", "", unix.MS_SHARED|unix.MS_REC, ""))
		add(t, pod, "net1", "")
		dir, spec := ociSpec(t, pod, "DEVINFO_NET1", "-")
		must(t, os.Mkdir(dir+"/rootfs/var", 0o755))
		must(t, os.Symlink("../run", dir+"/rootfs/var/run")) // as nearly every image has it
		spec.Linux.RootfsPropagation = "rshared"             // what containerd and CRI-O make of Bidirectional
		spec.Mounts = append(spec.Mounts, oci.Mount{Destination: "/run", Source: "/run", Type: "bind", Options: []string{"rbind", "rshared"}})
		adjust(t, a, pod, &spec)
		save(t, dir, spec)
		asked := false
		inContainer(t, dir, func() {
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
