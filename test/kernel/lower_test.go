package kernel_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/link/linktest"
)

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
		addTap(t, "tap0")
		conf := `{"cniVersion": "1.1.0", "name": "hd", "type": "host-device", "device": "tap0"}`
		hostDevice := devinfo("ADD", pod, conf)
		hostDevice.Path = filepath.Join(binDir(t), "host-device")
		finish(t, hostDevice).ok(t)
		same(t, "interfaces in the pod", podLinks(t, pod), "net1")
		hasNoDevice(t, pod)
	})
}

func addTap(t *testing.T, name string) {
	t.Helper()
	tap := &netlink.Tuntap{LinkAttrs: netlink.NewLinkAttrs(), Mode: netlink.TUNTAP_MODE_TAP}
	tap.Name = name
	err := netlink.LinkAdd(tap)
	if errors.Is(err, fs.ErrPermission) {
		t.Skip("/dev/net/tun is not for this user:", err)
	}
	if err != nil {
		t.Fatalf("add tap %s: %v", name, err)
	}
}
