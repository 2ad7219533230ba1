package kernel_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/vishvananda/netlink"

	"devinfo-cni.io/pkg/link/linktest"
)

// delegates is a configuration as a runtime passes it, with children.
func delegates(children ...string) string {
	return `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo", "deviceID": "` + vf + `",
		"capabilities": {"CNIDeviceInfoFile": true}, "runtimeConfig": {"CNIDeviceInfoFile": "` + infoFile + `"},
		"delegates": [` + strings.Join(children, ",") + `]}`
}

func podMAC(t *testing.T, netns string) (mac string) {
	t.Helper()
	err := linktest.InNetns(netns, func() error {
		l, err := netlink.LinkByName("net1")
		if err == nil {
			mac = l.Attrs().HardwareAddr.String()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return mac
}

// preparedInfo puts a file where the runtime's path leads, as Multus does.
func preparedInfo(t *testing.T, text string) {
	t.Helper()
	if err := os.MkdirAll(infoDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(infoFile, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const prepared = `{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:10.0","x-vendor":1}}`

func TestFailingChildUndoesTheOnesBefore(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		preparedInfo(t, prepared)
		a := call(t, "ADD", pod, delegates(bridgeConf, `{"type": "tuning", "sysctl": {"net.ipv4.nonsense": "1"}}`, `{"type": "child"}`))
		a.fails(t, 999, "delegates[1] (tuning): ADD: open /proc/sys/net/ipv4/nonsense: no such file or directory")
		same(t, "calls of the child behind", childCalls(t), "")
		same(t, "addresses", addresses(t), "")
		same(t, "interfaces in the pod", podLinks(t, pod), "")
		same(t, "interfaces beside it", hostLinks(t), "br0")
		same(t, "device-info file", read(t, infoFile), prepared)
		same(t, "our files", files(t, stateDir), "")
	})
}

// The first error is the one that counts, however its code came about; what goes
// wrong afterwards is in its details.
func TestFirstErrorIsKept(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		a := call(t, "ADD", pod, delegates(bridgeConf,
			`{"type": "child", "play": {"error": {"cniVersion": "1.1.0", "code": 119, "msg": "no more cheese", "details": "stilton"}}}`))
		a.fails(t, 119, "delegates[1] (child): ADD: no more cheese")
		var e types.Error
		if err := json.Unmarshal([]byte(a.stdout), &e); err != nil {
			t.Fatal(err)
		}
		same(t, "details", e.Details, "stilton")
		same(t, "calls of the child", childCalls(t), "ADD\nDEL\n")
		same(t, "interfaces in the pod", podLinks(t, pod), "")
		nothingLeft(t)
	})
}

// What is wrong with the device is known only after the children have made the
// interface: they are undone too.
func TestConflictAfterTheChildrenUndoesThem(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		spoiler := `{"type": "child", "play": {"spoil": "` + infoFile + `"}}`
		a := call(t, "ADD", pod, delegates(bridgeConf, spoiler))
		a.fails(t, 102, "deviceID names the PCI function 0000:01:10.0, but the device-info file names the PCI function 0000:01:10.2: they must be the same device")
		same(t, "interfaces in the pod", podLinks(t, pod), "")
		nothingLeft(t)
	})
}

func TestCompleteAttachmentIsNotTornDown(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		conf := delegates(bridgeConf)
		call(t, "ADD", pod, conf).ok(t)
		before := files(t, infoDir, stateDir) + podLinks(t, pod) + podMAC(t, pod) + addresses(t)
		again := call(t, "ADD", pod, conf)
		var e types.Error
		if err := json.Unmarshal([]byte(again.stdout), &e); err != nil || e.Code != 7 || !strings.HasPrefix(e.Details, "DEL first") {
			t.Errorf("second ADD: exit code %d: %s", again.exit, again.stdout)
		}
		same(t, "the attachment", files(t, infoDir, stateDir)+podLinks(t, pod)+podMAC(t, pod)+addresses(t), before)
		call(t, "DEL", pod, conf).ok(t)
		call(t, "ADD", pod, conf).ok(t)
		call(t, "DEL", pod, conf).ok(t)
		nothingLeft(t)
	})
}
