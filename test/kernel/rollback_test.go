package kernel_test

import (
	"os"
	"strings"
	"testing"

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
