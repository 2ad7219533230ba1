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

// AskedLeases returns leases of the devices that an entry's configuration and its delegates name, by whatever key. ADD takes
// the leases before the delegates run, because sriov-cni changes a VF before devinfo can find it. The leases are exclusive,
// because a pod does not share a device that it gets by deviceID; of an interface they are those of the ADD that finds it
// in the pod.
func (c *Cleaner) AskedLeases(e *journal.Entry) (list []journal.DeviceLease, err error) {
	names, interfaces, err := c.named(e.Requested.DeviceIDs, e.Delegates, e.CapabilityArgs)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		more, err := journal.LeasesOf(c.Finder.Sys, journal.Exclusive, name)
		if err != nil {
			return nil, err
		}
		list = journal.MergeLeases(list, more...)
	}
	onHost := &discovery.Finder{Sys: c.Finder.Sys, Interfaces: hostInterfaces{c.Finder.Interfaces}}
	for _, name := range interfaces {
		device, err := onHost.Find(discovery.Target{Netns: "host", IfName: name, FollowLower: true})
		if err != nil {
			return nil, err
		}
		more, err := LeasesOf(c.Finder.Sys, nil, device, device.Info) // none if there is no such interface
		if err != nil {
			return nil, err
		}
		list = journal.MergeLeases(list, more...)
	}
	return list, nil
}

// named returns the names of devices and of interfaces of the host that the IDs and the delegates' configurations have. A
// name that a delegate could read as another device's is an error. runtime is the runtimeConfig for the delegates.
func (c *Cleaner) named(ids []config.NamedID, delegates []json.RawMessage, runtime map[string]json.RawMessage) (names, interfaces []string, err error) {
	for _, id := range ids {
		if p := (config.DeviceKey{Key: id.Key, As: config.AsID, Value: id.ID}).Ambiguous(); p != nil && len(delegates) > 0 {
			return nil, nil, p
		}
		names = append(names, id.ID)
	}
	for n, raw := range delegates {
		devices, _ := config.DelegateDevices(fmt.Sprintf("delegates[%d]", n), raw, runtime) // of two spellings both are there
		for _, d := range devices {
			if p := d.Ambiguous(); p != nil {
				return nil, nil, p
			}
			switch d.As {
			case config.AsID:
				names = append(names, d.Value)
			case config.AsKernelPath:
				name, ok, err := c.Finder.Sys.DeviceAt(d.Value)
				if err == nil && !ok {
					err = d.Problem("the directory of a device below /sys/devices")
				}
				if err != nil {
					return nil, nil, err
				}
				names = append(names, name)
			case config.AsInterface:
				interfaces = append(interfaces, d.Value)
			case config.AsMAC: // several interfaces may have one
				mac, err := net.ParseMAC(d.Value)
				if err != nil {
					continue // host-device parses it the same way
				}
				more, err := c.Finder.Interfaces.WithMAC(mac)
				if err != nil {
					return nil, nil, err
				}
				interfaces = append(interfaces, more...)
			}
		}
	}
	return names, interfaces, nil
}

// hostInterfaces are those in the network namespace of this process, whatever namespace a target names.
type hostInterfaces struct{ discovery.Interfaces }

func (h hostInterfaces) Interface(_, name string) (link.Interface, error) {
	return h.Interfaces.Interface("", name)
}

// LeasesOf returns leases of a device that a [discovery.Finder] has found. They are exclusive, unless other interfaces use
// the device too, or may do so and none of the IDs names it.
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
