package discovery_test

import (
	"errors"
	"net"
	"testing"

	"devinfo-cni.io/pkg/link"
)

func TestVirtioDeviceThatCannotBeToldIsWarnedOf(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	for _, m := range []vdpaMAC{{}, {ok: true, mac: "02:00:00:00:00:01"}} {
		f.Interfaces = m
		find(t, f, byID("vdpa6"), `
			vdpa.parent-device vdpa6 < deviceID
			vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa6/driver
			vdpa.pci-address 0000:65:00.0 < /sys/bus/vdpa/devices/vdpa6
			vdpa.representor-device eth8 < devlink ports of pci/0000:65:00.0
			on mlx5_core.sf.2
			warning: /sys/bus/vdpa/devices/vdpa6: cannot tell which virtio device is its own (virtio8, virtio9)`)
	}
	f.Interfaces = vdpaMAC{err: errors.New("made up")}
	find(t, f, byID("vdpa6"), `
		vdpa.parent-device vdpa6 < deviceID
		vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa6/driver
		vdpa.pci-address 0000:65:00.0 < /sys/bus/vdpa/devices/vdpa6
		vdpa.representor-device eth8 < devlink ports of pci/0000:65:00.0
		on mlx5_core.sf.2
		warning: vdpa vdpa6: hardware address: made up
		warning: /sys/bus/vdpa/devices/vdpa6: cannot tell which virtio device is its own (virtio8, virtio9)`)
}

// vdpaMAC gives every vDPA device one answer, and has no interfaces.
type vdpaMAC struct {
	mac string
	ok  bool
	err error
}

func (vdpaMAC) Interface(string, string) (link.Interface, error) {
	return link.Interface{}, link.ErrNoInterface
}

func (m vdpaMAC) VDPAMAC(string) (net.HardwareAddr, bool, error) {
	mac, _ := net.ParseMAC(m.mac)
	return mac, m.ok, m.err
}
