package discovery_test

import (
	"errors"
	"net"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
)

const vdpa4 = `
	vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa4/driver
	vdpa.path /sys/bus/virtio/devices/virtio7 < /sys/bus/virtio/devices/virtio7
	vdpa.pci-address 0000:65:00.4 < /sys/bus/vdpa/devices/vdpa4
	vdpa.pf-pci-address 0000:65:00.0 < /sys/bus/pci/devices/0000:65:00.4/physfn
	vdpa.representor-device eth6 < devlink ports of pci/0000:65:00.0`

const vf4 = `
	pci.pf-pci-address 0000:65:00.0 < /sys/bus/pci/devices/0000:65:00.4/physfn
	pci.rdma-device mlx5_4 < /sys/bus/pci/devices/0000:65:00.4/infiniband
	pci.representor-device eth6 < devlink ports of pci/0000:65:00.0`

func TestTypeIsVDPAWhenSomethingSaysSo(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	vf := func(t *testing.T, declared, existing string) discovery.Target {
		target := byID("0000:65:00.4")
		if declared != "" {
			target.Declared = info(t, declared)
		}
		if existing != "" {
			target.Existing = info(t, existing)
		}
		return target
	}
	for name, test := range map[string]struct {
		target discovery.Target
		want   string
	}{
		"declared": {vf(t, `{"type": "vdpa"}`, ``), "vdpa.parent-device vdpa4 < /sys/bus/vdpa/devices/vdpa4" + vdpa4},
		"declared with the device": {vf(t, `{"type": "vdpa", "vdpa": {"parent-device": "vdpa4"}}`, ``),
			"vdpa.parent-device vdpa4 < the configuration's deviceInfo" + vdpa4},
		"existing": {vf(t, ``, `{"type": "vdpa"}`), "vdpa.parent-device vdpa4 < /sys/bus/vdpa/devices/vdpa4" + vdpa4},
		"existing with the device": {vf(t, ``, `{"type": "vdpa", "vdpa": {"parent-device": "vdpa4", "path": "/dev/wrong"}}`),
			"vdpa.parent-device vdpa4 < the device-info file" + vdpa4}, // and the path is the kernel's
		"existing with the function only": {discovery.Target{Existing: info(t, `{"type": "vdpa", "vdpa": {"pci-address": "0000:65:00.4"}}`)},
			"vdpa.parent-device vdpa4 < /sys/bus/vdpa/devices/vdpa4" + vdpa4},
		"named by deviceID": {byID("vdpa4"), "vdpa.parent-device vdpa4 < deviceID" + vdpa4},
		"named by pciID":    {discovery.Target{PCIID: "vdpa4"}, "vdpa.parent-device vdpa4 < the result's pciID" + vdpa4},
		"carried by the VF": {vf(t, ``, ``), "vdpa.parent-device vdpa4 < /sys/bus/vdpa/devices/vdpa4" + vdpa4},
	} {
		t.Run(name, func(t *testing.T) { find(t, f, test.target, test.want) })
	}
}

func TestTypePCIStaysPCI(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	for _, id := range []string{"0000:65:00.4", "vdpa4"} {
		target := byID(id)
		target.Declared = info(t, `{"type": "pci"}`)
		find(t, f, target, "pci.pci-address 0000:65:00.4 < deviceID"+vf4)
		target.Declared, target.Existing = nil, info(t, `{"type": "pci", "pci": {"pci-address": "0000:65:00.4"}}`)
		find(t, f, target, "pci.pci-address 0000:65:00.4 < deviceID"+vf4)
		target.Declared = info(t, `{"type": "vdpa"}`) // declared beats existing; the plugin refuses it
		if device, err := f.Find(target); err != nil || device.Info.Type != devinfo.TypeVDPA {
			t.Errorf("%s", show(t, device, err))
		}
	}
	target := byID("vdpa0")
	target.Declared = info(t, `{"type": "pci"}`)
	find(t, on(t, load(t, "vdpa-sim")), target,
		"undescribable: the vDPA device vdpa0 cannot be described: the type is pci, but it has no PCI address")
	target = byID("vdpa6")
	target.Declared = info(t, `{"type": "pci"}`)
	find(t, f, target, `undescribable: the vDPA device vdpa6 cannot be described: the specification has no type for a sub-function, `+
		`and its parent's PCI address would hand the whole parent to a VM; "subfunctionParent": true writes it all the same`)
}

func TestTypeVDPAWithoutAVDPADeviceIsUndescribable(t *testing.T) {
	for host, id := range map[string]string{"mlx5-legacy": "0000:3b:00.2", "mlx5-vdpa": "0000:65:00.2", "mlx5-switchdev": "mlx5_core.sf.4"} {
		target := byID(id)
		target.Declared = info(t, `{"type": "vdpa"}`)
		device, err := on(t, load(t, host)).Find(target)
		if undescribable := (*discovery.UndescribableError)(nil); err != nil || device.Info != nil || !errors.As(device.Problem, &undescribable) {
			t.Errorf("%s: %s", id, show(t, device, err))
		}
	}
}

func TestUnboundVDPADevice(t *testing.T) {
	const rest = `
		vdpa.pci-address 0000:65:00.5 < /sys/bus/vdpa/devices/vdpa5
		vdpa.pf-pci-address 0000:65:00.0 < /sys/bus/pci/devices/0000:65:00.5/physfn
		vdpa.representor-device eth7 < devlink ports of pci/0000:65:00.0
		undescribable: the vDPA device vdpa5 cannot be described: it is bound to no driver; bind it: echo vdpa5 > /sys/bus/vdpa/drivers/vhost_vdpa/bind`
	f := on(t, load(t, "mlx5-vdpa"))
	find(t, f, byID("vdpa5"), "vdpa.parent-device vdpa5 < deviceID"+rest)
	target := byID("0000:65:00.5")
	target.Declared = info(t, `{"type": "vdpa"}`)
	find(t, f, target, "vdpa.parent-device vdpa5 < /sys/bus/vdpa/devices/vdpa5"+rest)
}

func TestVDPADeviceOfAnotherDriverIsUndescribable(t *testing.T) {
	h, err := hosttxt.Parse([]byte(`made up
-- sys/bus/vdpa/drivers/other/ --
-- sys/bus/vdpa/devices/v0 -> ../../../devices/v0 --
-- sys/devices/v0/driver -> ../../bus/vdpa/drivers/other --
`))
	if err != nil {
		t.Fatal(err)
	}
	find(t, on(t, h), byID("v0"), `
		vdpa.parent-device v0 < deviceID
		undescribable: the vDPA device v0 cannot be described: its driver "other" is neither vhost_vdpa nor virtio_vdpa`)
}

func TestVhostVDPADeviceWithoutChildHasNoPath(t *testing.T) {
	h, err := hosttxt.Parse([]byte(`made up
-- sys/bus/vdpa/drivers/vhost_vdpa/ --
-- sys/bus/vdpa/devices/v0 -> ../../../devices/v0 --
-- sys/devices/v0/driver -> ../../bus/vdpa/drivers/vhost_vdpa --
`))
	if err != nil {
		t.Fatal(err)
	}
	find(t, on(t, h), byID("v0"), `
		vdpa.parent-device v0 < deviceID
		vdpa.driver vhost < /sys/bus/vdpa/devices/v0/driver
		warning: /sys/bus/vdpa/devices/v0: is bound to vhost_vdpa, but has no vhost-vdpa-N`)
}

func TestInterfaceOnAVirtioDeviceLeadsToItsVDPADevice(t *testing.T) {
	find(t, onHostNetwork(t, load(t, "mlx5-vdpa")), inPod("eth12"), "vdpa.parent-device vdpa4 < interface eth12 (ethtool bus-info)"+vdpa4+"\nin netns")
	find(t, onHostNetwork(t, load(t, "vdpa-sim")), inPod("eth1"), `
		vdpa.parent-device vdpa1 < interface eth1 (netlink)
		vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa1/driver
		vdpa.path /sys/bus/virtio/devices/virtio4 < /sys/bus/virtio/devices/virtio4
		in netns`)
	find(t, onHostNetwork(t, load(t, "vdpa-vf-virtio")), inPod("eth1"), `
		vdpa.parent-device vpvdpa0 < interface eth1 (ethtool bus-info)
		vdpa.driver virtio < /sys/bus/vdpa/devices/vpvdpa0/driver
		vdpa.path /sys/bus/virtio/devices/virtio4 < /sys/bus/virtio/devices/virtio4
		vdpa.pci-address 0000:02:00.1 < /sys/bus/vdpa/devices/vpvdpa0
		vdpa.pf-pci-address 0000:02:00.0 < /sys/bus/pci/devices/0000:02:00.1/physfn
		in netns`)
	find(t, onHostNetwork(t, load(t, "vdpa-vf-virtio")), inPod("eth2"), ` 
		pci.pci-address 0000:02:00.2 < interface eth2 (netlink)
		pci.pf-pci-address 0000:02:00.0 < /sys/bus/pci/devices/0000:02:00.2/physfn
		in netns`) // a virtio card of its own
}

// onSF is what is known of the vDPA device on an SF, whose virtio device is below
// the PF, among others.
func onSF(name, parentSource, virtio, virtioSource, representor string) string {
	return `
		vdpa.parent-device ` + name + ` < ` + parentSource + `
		vdpa.driver virtio < /sys/bus/vdpa/devices/` + name + `/driver
		vdpa.path /sys/bus/virtio/devices/` + virtio + ` < ` + virtioSource + `
		vdpa.pci-address 0000:65:00.0 < /sys/bus/vdpa/devices/` + name + `
		vdpa.representor-device ` + representor + ` < devlink ports of pci/0000:65:00.0`
}

func TestHardwareAddressTellsTheVirtioDevicesOfOneFunctionApart(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	find(t, f, byID("vdpa6"), onSF("vdpa6", "deviceID", "virtio9", "the hardware address 02:65:00:00:00:10", "eth8"))
	find(t, f, byID("vdpa7"), onSF("vdpa7", "deviceID", "virtio8", "the hardware address 02:65:00:00:00:11", "eth9"))
	find(t, f, byID("mlx5_core.sf.2"), onSF("vdpa6", "/sys/bus/vdpa/devices/vdpa6", "virtio9", "the hardware address 02:65:00:00:00:10", "eth8"))
}

func TestThePodsInterfaceTellsTheVirtioDevicesOfOneFunctionApart(t *testing.T) {
	f := onHostNetwork(t, load(t, "mlx5-vdpa"))
	for _, id := range []string{"vdpa6", "mlx5_core.sf.2"} {
		target, source := inPod("eth14"), "deviceID"
		target.DeviceIDs = ids("deviceID", id)
		if id != "vdpa6" {
			source = "interface eth14 (ethtool bus-info)"
		}
		find(t, f, target, onSF("vdpa6", source, "virtio9", "interface eth14 (netlink)", "eth8")+"\nin netns")
	}
}

func TestVirtioDeviceOfAnUnknownVDPADeviceIsNotTakenForTheFunction(t *testing.T) {
	f := onHostNetwork(t, load(t, "mlx5-vdpa"))
	f.Interfaces = withoutBusInfo{f.Interfaces}
	find(t, f, inPod("eth14"), `
		in netns
		undescribable: interface eth14 cannot be described: its virtio9 is that of a vDPA device of the PCI function 0000:65:00.0, which the kernel does not name; name the vDPA device by deviceID`)
	target := inPod("eth14")
	target.DeviceIDs = ids("deviceID", "vdpa4") // which is on another function
	find(t, f, target, "conflict: deviceID names the vDPA device vdpa4, but interface eth14 (netlink) names the PCI function 0000:65:00.0: they must be the same device")
}

// withoutBusInfo is a driver that has no answer for ethtool.
type withoutBusInfo struct{ discovery.Interfaces }

func (w withoutBusInfo) Interface(netns, name string) (link.Interface, error) {
	i, err := w.Interfaces.Interface(netns, name)
	i.BusInfo = ""
	return i, err
}

func TestVirtioDeviceThatCannotBeToldIsWarnedOf(t *testing.T) {
	f := on(t, load(t, "mlx5-vdpa"))
	for _, m := range []vdpaMAC{{}, {ok: true, mac: "02:00:00:00:00:01"}} {
		f.Interfaces = m
		find(t, f, byID("vdpa6"), `
			vdpa.parent-device vdpa6 < deviceID
			vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa6/driver
			vdpa.pci-address 0000:65:00.0 < /sys/bus/vdpa/devices/vdpa6
			vdpa.representor-device eth8 < devlink ports of pci/0000:65:00.0
			warning: /sys/bus/vdpa/devices/vdpa6: cannot tell which virtio device is its own (virtio8, virtio9)`)
	}
	f.Interfaces = vdpaMAC{err: errors.New("made up")}
	find(t, f, byID("vdpa6"), `
		vdpa.parent-device vdpa6 < deviceID
		vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa6/driver
		vdpa.pci-address 0000:65:00.0 < /sys/bus/vdpa/devices/vdpa6
		vdpa.representor-device eth8 < devlink ports of pci/0000:65:00.0
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
