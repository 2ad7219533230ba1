// Package listing lists the interfaces, devlink ports, eswitches and vDPA devices of this machine, for programs that
// examine a node. The lists have the format of iproute2's JSON (ip -d -j link, devlink port -j, devlink dev eswitch
// show -j, vdpa dev config show -j), but need no iproute2. Package linkhost reads them from a capture.
package listing

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/rtnetlink"
)

// Interface is a network interface. Keys that the kernel does not report are missing.
type Interface struct {
	Index     int      `json:"ifindex"`
	Name      string   `json:"ifname"`
	AltNames  []string `json:"altnames,omitempty"`
	Link      string   `json:"link,omitempty"`         // lower interface, or peer of a veth, in the same network namespace
	LinkIndex int      `json:"link_index,omitempty"`   // its index if it is in another network namespace, or if its name is unknown
	LinkNetns *int     `json:"link_netnsid,omitempty"` // its network namespace
	MTU       int      `json:"mtu"`                    // bytes
	Master    string   `json:"master,omitempty"`
	Address   string   `json:"address,omitempty"`
	Info      Info     `json:"linkinfo,omitzero"`
	PortName  string   `json:"phys_port_name,omitempty"`
	Bus       string   `json:"parentbus,omitempty"`
	Parent    string   `json:"parentdev,omitempty"`
	Flags     []string `json:"flags,omitempty"`    // "UP", and "NO-CARRIER" if the interface is up
	BusInfo   string   `json:"bus_info,omitempty"` // ethtool's bus_info, which iproute2 does not have, if Parent is "" or Bus is "virtio"
}

// Called reports whether a name is the interface's name or one of its altnames.
func (i Interface) Called(name string) bool {
	return i.Name == name || slices.Contains(i.AltNames, name)
}

type Info struct {
	Kind string `json:"info_kind"`
}

// Interfaces lists the interfaces of the network namespace at a path, or of the current one for "". It returns the
// errors of [link.Kernel.Interface].
func Interfaces(netns string) ([]Interface, error) {
	var list []Interface
	err := link.Within(netns, func() error {
		c := rtnetlink.Dial()
		defer c.Close()
		all, err := c.Links(rtnetlink.SkipStats)
		if err == nil {
			list = interfaces(c, all)
		}
		return err
	})
	return list, err
}

func interfaces(c rtnetlink.Conn, all []rtnetlink.Link) []Interface {
	names := map[int]string{}
	for _, l := range all {
		names[l.Index] = l.Name
	}
	list := make([]Interface, len(all))
	for n, l := range all {
		i := Interface{
			Index: l.Index, Name: l.Name, Info: Info{l.Kind}, Bus: l.Bus, Parent: l.Parent, PortName: l.PortName, Address: address(l.MAC), MTU: l.MTU,
			Flags: flags(l.Flags), Master: names[l.Master], AltNames: l.AltNames, BusInfo: c.BusInfo(l),
		}
		if l.LowerNSID == rtnetlink.Local {
			i.Link = names[l.Lower]
		} else {
			i.LinkNetns = &all[n].LowerNSID
		}
		if i.Link == "" { // in another network namespace, or the parent of an IPoIB child
			i.LinkIndex = l.Lower
		}
		list[n] = i
	}
	return list
}

// flags returns iproute2's names of the flags that show whether the interface works.
func flags(raw uint32) (names []string) {
	if raw&unix.IFF_UP == 0 {
		return nil
	}
	if raw&unix.IFF_RUNNING == 0 {
		names = append(names, "NO-CARRIER")
	}
	return append(names, "UP")
}

// address formats a link-layer address as iproute2 does. The address of a tunnel is an IP address.
func address(value []byte) string {
	if len(value) == net.IPv4len || len(value) == net.IPv6len {
		return net.IP(value).String()
	}
	return net.HardwareAddr(value).String()
}

// Ports lists the devlink ports of all devices by handle, such as "pci/0000:03:00.0/65535". It returns an empty map
// if the kernel has no devlink.
func Ports() (map[string]link.PortRecord, error) {
	list, err := link.Handle{}.Ports()
	if err != nil && !rtnetlink.Absent(err) {
		return nil, fmt.Errorf("list devlink ports: %w", err)
	}
	all := make(map[string]link.PortRecord, len(list))
	for _, p := range list {
		all[fmt.Sprintf("%s/%s/%d", p.Bus, p.Device, p.Index)] = p
	}
	return all, nil
}

type Eswitch struct {
	Mode string `json:"mode"` // "legacy" or "switchdev"
}

// Eswitches lists the devices with an eswitch by handle, such as "pci/0000:03:00.0". The list is empty without
// CAP_NET_ADMIN.
func Eswitches() (map[string]Eswitch, error) {
	list, err := rtnetlink.Retry(netlink.DevLinkGetDeviceList)
	if err != nil && !rtnetlink.Absent(err) {
		return nil, fmt.Errorf("list devlink devices: %w", err)
	}
	all := map[string]Eswitch{}
	for _, d := range list {
		if d.Attrs.Eswitch.Mode != "" {
			all[d.BusName+"/"+d.DeviceName] = Eswitch{strings.ToLower(d.Attrs.Eswitch.Mode)}
		}
	}
	return all, nil
}

type VDPA struct {
	MAC string `json:"mac,omitempty"`
}

// VDPAs lists the configurations of the vDPA devices by name. It returns an empty map if the kernel has no vDPA.
func VDPAs() (map[string]VDPA, error) {
	list, err := rtnetlink.Retry(netlink.VDPAGetDevConfigList)
	if err != nil && !rtnetlink.Absent(err) {
		return nil, fmt.Errorf("list vDPA devices: %w", err)
	}
	all := make(map[string]VDPA, len(list))
	for _, c := range list {
		all[c.Name] = VDPA{c.Net.Cfg.MACAddr.String()}
	}
	return all, nil
}
