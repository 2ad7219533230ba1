//go:build vm

package vm_test

import (
	"os"
	"testing"
)

// inPool puts a device plugin's file into the machine, until the end of the test.
func inPool(t *testing.T, name, text string) (path string) {
	t.Helper()
	must(t, os.MkdirAll(poolDir, 0o755))
	path = poolDir + "/" + name
	write(t, path, text)
	t.Cleanup(func() {
		same(t, path, read(t, path), text)
		os.Remove(path)
	})
	return path
}

func TestDevicePluginsFileIsCopiedCompletedAndCleanedUp(t *testing.T) {
	needs(t, "igb")
	inPool(t, "vendor.example-vf_pool-0000:01:10.4-device.json",
		`{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:10.4","numa":"0"},"vendor.example":{"token":1.50}}`)
	n := newNetwork(t, "pool", `[{"type": "host-device", "capabilities": {"deviceID": true}},
		{"type": "devinfo", "resourceName": "vendor.example/vf_pool", "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}]`)
	a := n.attachment("pod1", "net1", "0000:01:10.4")
	a.add(moved(t, "enp1s0v2", "net1", "/run/netns/pod1", "0000:01:10.4"))
	a.file(`{"type": "pci", "version": "1.0.0",
		"pci": {"pci-address": "0000:01:10.4", "pf-pci-address": "0000:01:00.0", "numa": "0"}, "vendor.example": {"token": 1.50}}`)
	a.ends()
}
