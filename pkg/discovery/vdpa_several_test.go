package discovery_test

import (
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
)

// several is a function with three vDPA devices: vdpa8 is not bound, vdpa9 on vhost and
// vdpa10 on virtio, whose virtio3 is beside it.
const several = `made up
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/bus/vdpa/drivers/vhost_vdpa/ --
-- sys/bus/vdpa/drivers/virtio_vdpa/ --
-- sys/bus/vdpa/devices/vdpa8 -> ../../../devices/pci0000:00/0000:01:00.0/vdpa8 --
-- sys/bus/vdpa/devices/vdpa9 -> ../../../devices/pci0000:00/0000:01:00.0/vdpa9 --
-- sys/bus/vdpa/devices/vdpa10 -> ../../../devices/pci0000:00/0000:01:00.0/vdpa10 --
-- sys/bus/virtio/devices/virtio3 -> ../../../devices/pci0000:00/0000:01:00.0/virtio3 --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa8/ --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa9/driver -> ../../../../bus/vdpa/drivers/vhost_vdpa --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa9/vhost-vdpa-2/ --
-- sys/devices/pci0000:00/0000:01:00.0/vdpa10/driver -> ../../../../bus/vdpa/drivers/virtio_vdpa --
-- sys/devices/pci0000:00/0000:01:00.0/virtio3/ --
`

func TestNoneOfSeveralVDPADevicesIsGuessed(t *testing.T) {
	const undescribable = `undescribable: the PCI function 0000:01:00.0 cannot be described: it carries 3 vDPA devices (vdpa8, vdpa9, vdpa10), ` +
		`and nothing says which one is meant; name it as deviceID, or as parent-device in deviceInfo or in the device-info file`
	const vdpa9 = `
		vdpa.driver vhost < /sys/bus/vdpa/devices/vdpa9/driver
		vdpa.path /dev/vhost-vdpa-2 < /sys/bus/vdpa/devices/vdpa9/vhost-vdpa-2
		vdpa.pci-address 0000:01:00.0 < /sys/bus/vdpa/devices/vdpa9`
	h, err := hosttxt.Parse([]byte(several))
	must(t, err)
	f, target := on(t, h), byID("0000:01:00.0")
	find(t, f, target, undescribable)
	target.Declared = info(t, `{"type": "vdpa"}`)
	find(t, f, target, undescribable)
	target.Existing = info(t, `{"type": "vdpa", "vdpa": {"pci-address": "0000:01:00.0"}}`)
	find(t, f, target, undescribable)

	target.Existing = info(t, `{"type": "vdpa", "vdpa": {"parent-device": "vdpa9"}}`)
	find(t, f, target, "vdpa.parent-device vdpa9 < the device-info file"+vdpa9)
	find(t, f, byID("vdpa9"), "vdpa.parent-device vdpa9 < deviceID"+vdpa9)
	target.Existing, target.Declared = nil, info(t, `{"type": "pci"}`)
	find(t, f, target, "pci.pci-address 0000:01:00.0 < deviceID") // they do not matter
}

func TestTheVirtioDeviceOfThePodsInterfaceTellsWhichOfSeveralItIs(t *testing.T) {
	const vdpa10 = `
		vdpa.driver virtio < /sys/bus/vdpa/devices/vdpa10/driver
		vdpa.path /sys/bus/virtio/devices/virtio3 < /sys/bus/virtio/devices/virtio3
		vdpa.pci-address 0000:01:00.0 < /sys/bus/vdpa/devices/vdpa10
		in netns`
	h, err := hosttxt.Parse([]byte(several))
	must(t, err)
	f, target := on(t, h), inPod("net1")
	target.DeviceIDs = ids("deviceID", "0000:01:00.0")
	nic := link.Interface{Name: "net1", Bus: "virtio", Parent: "virtio3", BusInfo: "vdpa10"}
	f.Interfaces = interfaces{"net1": nic}
	find(t, f, target, "vdpa.parent-device vdpa10 < interface net1 (ethtool bus-info)"+vdpa10+"\nown")
	nic.BusInfo = "" // then it can only be that of the one on virtio_vdpa
	f.Interfaces = interfaces{"net1": nic}
	find(t, f, target, "vdpa.parent-device vdpa10 < /sys/bus/vdpa/devices/vdpa10"+vdpa10)

	f.Interfaces = interfaces{"net1": {Name: "net1", Kind: "macvlan", Lower: &nic}}
	target.FollowLower = false // what the lower interface is on tells nothing
	device, err := f.Find(target)
	if err != nil || device.Info != nil || device.IsInterface {
		t.Error(show(t, device, err))
	}
}
