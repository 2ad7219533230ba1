package delegate

import (
	"fmt"
	"net"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// askedLeases returns leases of all devices that the delegates of an entry will take by a name in their configurations.
func askedLeases(a *plugin.Addition, e *journal.Entry) ([]journal.DeviceLease, error) {
	list, err := cleanup.AskedLeases(a.Sys, a.Config.DeviceIDs, e.Delegates, e.CapabilityArgs)
	if err != nil {
		return nil, err
	}
	for n, raw := range e.Delegates {
		devices, _ := config.DelegateDevices(fmt.Sprintf("delegates[%d]", n), raw, nil) // runnable has refused problems
		for _, d := range devices {
			names, err := interfaces(a, d)
			if err != nil {
				return nil, err
			}
			for _, name := range names {
				more, err := a.LeasesOfHostInterface(name)
				if err != nil {
					return nil, err
				}
				list = journal.MergeLeases(list, more...)
			}
		}
	}
	return list, nil
}

// interfaces returns the interfaces of the host that a key names. Several may have one MAC address.
func interfaces(a *plugin.Addition, d config.DeviceKey) ([]string, error) {
	switch d.As {
	case config.AsInterface:
		return []string{d.Value}, nil
	case config.AsMAC:
		if mac, err := net.ParseMAC(d.Value); err == nil { // host-device parses it the same way
			return a.Finder.Interfaces.WithMAC(mac)
		}
	}
	return nil, nil
}
