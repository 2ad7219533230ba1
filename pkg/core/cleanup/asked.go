package cleanup

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// AskedLeases returns leases of the devices that the network's and the delegates' configurations name, by any of their
// keys. runtime is the runtimeConfig for the delegates. ADD takes the leases before the delegates run, because sriov-cni
// changes a VF before devinfo can find it; DEL compares them with those of other attachments. Devices that are named by
// an ID or a path are leased exclusively, because a pod does not share a device that it gets by deviceID.
func (c *Cleaner) AskedLeases(ids []config.NamedID, delegates []json.RawMessage, runtime map[string]json.RawMessage) (list []journal.DeviceLease, err error) {
	var names, interfaces []string
	for _, id := range ids {
		names = append(names, id.ID)
	}
	for n, raw := range delegates {
		devices, _ := config.DelegateDevices(fmt.Sprintf("delegates[%d]", n), raw, runtime) // ADD has refused problems
		for _, d := range devices {
			if err := c.resolve(d, &names, &interfaces); err != nil {
				return nil, err
			}
		}
	}
	for n, name := range names {
		if slices.Contains(names[:n], name) {
			continue
		}
		more, err := journal.LeasesOf(c.Sys, journal.Exclusive, name)
		if err != nil {
			return nil, err
		}
		list = journal.MergeLeases(list, more...)
	}
	slices.Sort(interfaces)
	for _, name := range slices.Compact(interfaces) {
		more, err := c.leasesOfInterface(name)
		if err != nil {
			return nil, err
		}
		list = journal.MergeLeases(list, more...)
	}
	return list, nil
}

// resolve adds what a key names: devices of a bus, or interfaces of the host.
func (c *Cleaner) resolve(d config.DeviceKey, names, interfaces *[]string) error {
	switch d.As {
	case config.AsID:
		*names = append(*names, d.Value)
	case config.AsKernelPath:
		name, ok, err := c.Sys.DeviceAt(d.Value)
		if err == nil && !ok {
			err = d.Problem("the directory of a device below /sys/devices")
		}
		if err != nil {
			return err
		}
		*names = append(*names, name)
	case config.AsInterface:
		*interfaces = append(*interfaces, d.Value)
	case config.AsMAC:
		mac, err := net.ParseMAC(d.Value) // host-device parses it the same way
		if err != nil || c.Interfaces == nil {
			return nil
		}
		all, err := c.Interfaces.WithMAC(mac) // several may have one MAC address
		if err != nil {
			return err
		}
		*interfaces = append(*interfaces, all...)
	}
	return nil
}

// onHost reads interfaces of the host, which are in the network namespace of this process, whatever the request names.
type onHost struct{ discovery.Interfaces }

func (h onHost) Interface(_, name string) (link.Interface, error) {
	return h.Interfaces.Interface("", name)
}

// leasesOfInterface returns leases of the device of a host's interface, or of its lower interface, as ADD would for the
// interface in the pod. It returns none if the interface does not exist or has no device.
func (c *Cleaner) leasesOfInterface(name string) ([]journal.DeviceLease, error) {
	if c.Interfaces == nil {
		return nil, nil
	}
	finder := discovery.Finder{Sys: c.Sys, Interfaces: onHost{c.Interfaces}}
	device, err := finder.Find(discovery.Target{Netns: "host", IfName: name, FollowLower: true})
	if err != nil {
		return nil, err
	}
	return LeasesOf(c.Sys, nil, device, device.Info)
}

// LeasesOf returns leases of a device that was found. They are exclusive, unless other interfaces use the device too, or
// may do so and none of the IDs names it.
func LeasesOf(sys *sysfs.FS, ids []config.NamedID, device *discovery.Device, info *devinfo.Info) ([]journal.DeviceLease, error) {
	mode, name := journal.Exclusive, discovery.Identity(info)
	named := slices.ContainsFunc(ids, func(id config.NamedID) bool { return strings.EqualFold(id.ID, name) })
	if device.Shared || device.MaybeShared && !named {
		mode = journal.Shared
	}
	if device.SF != "" && (info == nil || info.Type != devinfo.TypeVDPA) {
		name = device.SF
	}
	return journal.LeasesOf(sys, mode, name)
}
