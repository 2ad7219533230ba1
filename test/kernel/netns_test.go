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

// shortLived returns a pod whose namespace and its path disappear when vanish is called.
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

// The runtime that calls GC knows only that the attachment is not valid any more.
func TestDELAndGCRemoveAttachmentWithoutNetns(t *testing.T) {
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

// ADD refuses the plugin's own namespace. The following DEL must not touch an interface of that name there, because
// it does not belong to the pod.
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

// A pod may mount the node's /run with mountPropagation Bidirectional. The runtime's mounts below it in the container
// then appear on the node, over the files of all pods.
func TestInjectedMountDoesNotAppearOnNode(t *testing.T) {
	needRunc(t)
	linktest.Run(t, func(t *testing.T) {
		a, pod := injection(t)
		must(t, unix.Mount("", "/run", "", unix.MS_SHARED|unix.MS_REC, ""))
		add(t, pod, "net1", "")
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

// hasNoDevice attaches an interface of a kind without a device. ADD must not log a warning, write a file or change
// the result. With "strict" it must fail.
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
