package kernel_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link/linktest"
)

// shortLived gives a pod whose namespace vanishes, path and all, with the call of
// the function.
func shortLived(t *testing.T) (pod string, vanish func()) {
	t.Helper()
	pod = t.TempDir() + "/netns"
	must(t, os.WriteFile(pod, nil, 0o444))
	must(t, unix.Mount(linktest.NewNetns(t), pod, "", unix.MS_BIND, ""))
	return pod, func() {
		must(t, unix.Unmount(pod, 0))
		must(t, os.Remove(pod))
	}
}

// GC is by a runtime that knows only that the attachment is not valid any more.
func TestDELAndGCWithoutNetns(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		for _, conf := range []string{standalone(infoFile), delegates(bridgeConf, `{"type": "child"}`)} {
			for _, passed := range []string{"the path", "nothing", "GC"} {
				pod, vanish := shortLived(t)
				call(t, "ADD", pod, conf).ok(t)
				vanish()
				call(t, "CHECK", pod, conf).fails(t, 8, "attachment net/c0ffee/net1: network namespace NETNS is gone")
				switch passed {
				case "nothing":
					pod = ""
				case "GC":
					call(t, "GC", "", strings.Replace(conf, "{", `{"cni.dev/valid-attachments": [], `, 1)).ok(t)
					nothingLeft(t)
				}
				for range 2 {
					call(t, "DEL", pod, conf).ok(t)
				}
				nothingLeft(t)
			}
		}
	})
}

// ADD refuses our own namespace. The DEL after that leaves it alone: an
// interface of that name in it is not the pod's.
func TestDelInOwnNetnsTouchesNoInterface(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		linktest.AddVeth(t, "net1", "peer", linktest.NewNetns(t))
		preparedInfo(t, prepared)
		call(t, "DEL", "/proc/self/ns/net", delegates(bridgeConf)).ok(t)
		same(t, "our interfaces", hostLinks(t), "net1")
		nothingLeft(t)
	})
}

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

// chained is the configuration of devinfo behind a plugin that made net1.
func chained(netns, more string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", ` + more + `
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"},
		"prevResult": {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "sandbox": "` + netns + `"}]}}`
}

// warnings gives the messages of the log.
func (a answer) warnings() string {
	var list []string
	for line := range strings.Lines(a.stderr) {
		if _, text, ok := strings.Cut(line, "level=WARN msg="); ok {
			list = append(list, strings.TrimSpace(text))
		}
	}
	return strings.Join(list, "\n")
}

// hasNoDevice runs an attachment of an interface of a kind that never has a device: no warning, no
// file, and the result as it was; with "strict" an error.
func hasNoDevice(t *testing.T, pod string) {
	t.Helper()
	a := call(t, "ADD", pod, chained(pod, ""))
	same(t, "result", compact(t, a.ok(t)), compact(t, `{"cniVersion":"1.1.0","interfaces":[{"name":"net1","sandbox":"`+pod+`"}]}`))
	same(t, "warnings", a.warnings(), "")
	same(t, "device-info files", files(t, infoDir), "")
	call(t, "CHECK", pod, chained(pod, "")).ok(t)
	call(t, "DEL", pod, chained(pod, "")).ok(t)
	call(t, "ADD", pod, chained(pod, `"strict": true,`)).fails(t, 100, "no device found for interface net1")
	nothingLeft(t)
}

func TestVethHasNoDevice(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		linktest.AddVeth(t, "nic", "net1", pod)
		hasNoDevice(t, pod)
	})
}

func TestTapHasNoDevice(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
		tap := &netlink.Tuntap{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.TUNTAP_MODE_TAP}
		tap.Name = "tap0"
		err := netlink.LinkAdd(tap)
		if errors.Is(err, fs.ErrPermission) {
			t.Skip("/dev/net/tun is not for this user:", err)
		}
		must(t, err)
		conf := `{"cniVersion": "1.1.0", "name": "hd", "type": "host-device", "device": "tap0"}`
		hostDevice := devinfo("ADD", pod, conf)
		hostDevice.Path = filepath.Join(binDir(t), "host-device")
		finish(t, hostDevice).ok(t)
		same(t, "interfaces in the pod", podLinks(t, pod), "net1")
		hasNoDevice(t, pod)
	})
}
