package link

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Recorder lists the netlink objects of this machine, in the format of iproute2's JSON (ip -d -j link, devlink port
// -j, devlink dev eswitch show -j, vdpa dev config show -j). Package linkhost reads such lists. Recorder runs no
// programs, so it does not need iproute2.
type Recorder struct{}

// InterfaceRecord is a network interface. Keys that the kernel does not report are missing.
type InterfaceRecord struct {
	Index     int      `json:"ifindex"`
	Name      string   `json:"ifname"`
	Link      string   `json:"link,omitempty"`         // lower interface, or peer of a veth, in the same network namespace
	LinkIndex int      `json:"link_index,omitempty"`   // its index if it is in another network namespace, or if its name is unknown
	LinkNetns *int     `json:"link_netnsid,omitempty"` // its network namespace
	MTU       int      `json:"mtu"`                    // bytes
	Master    string   `json:"master,omitempty"`
	Address   string   `json:"address,omitempty"`
	Info      LinkInfo `json:"linkinfo,omitzero"`
	PortName  string   `json:"phys_port_name,omitempty"`
	Bus       string   `json:"parentbus,omitempty"`
	Parent    string   `json:"parentdev,omitempty"`
	Flags     []string `json:"flags,omitempty"`    // "UP", and "NO-CARRIER" if the interface is up
	BusInfo   string   `json:"bus_info,omitempty"` // ethtool's bus_info, which iproute2 does not have, if Parent is "" or Bus is "virtio"
}

type LinkInfo struct {
	Kind string `json:"info_kind"`
}

// Interfaces lists the interfaces of the network namespace at a path, or of the current one for "". It returns the
// errors of [Kernel.Interface].
func (Recorder) Interfaces(netns string) ([]InterfaceRecord, error) {
	r, err := dial(netns)
	if err != nil {
		return nil, err
	}
	defer r.socket.Close()
	answers, err := r.links(unix.NLM_F_DUMP, 0, rtextFilterSkipStats)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	return r.records(answers)
}

func (r route) records(answers [][]byte) ([]InterfaceRecord, error) {
	all, names := make([]found, len(answers)), map[int]string{}
	for n, a := range answers {
		f, err := parse(a, local)
		if err != nil {
			return nil, fmt.Errorf("list interfaces: %w", err)
		}
		if f.Parent == "" || f.Bus == "virtio" {
			f.BusInfo = r.busInfo(f.Name)
		}
		all[n], names[f.Index] = f, f.Name
	}
	list := make([]InterfaceRecord, len(all))
	for n, f := range all {
		i := InterfaceRecord{
			Index: f.Index, Name: f.Name, Info: LinkInfo{f.Kind}, Bus: f.Bus, Parent: f.Parent, PortName: f.PortName, Address: address(f.MAC), MTU: f.MTU,
			BusInfo: f.BusInfo, Flags: flags(nl.DeserializeIfInfomsg(answers[n]).Flags), Master: names[f.master],
		}
		if f.linkNetns == local {
			i.Link = names[f.link]
		} else {
			i.LinkNetns = &all[n].linkNetns
		}
		if i.Link == "" { // in another network namespace, or the parent of an IPoIB child
			i.LinkIndex = f.link
		}
		list[n] = i
	}
	return list, nil
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
func (Recorder) Ports() (map[string]PortRecord, error) {
	list, err := Handle{}.Ports()
	if err != nil && !absent(err) {
		return nil, fmt.Errorf("list devlink ports: %w", err)
	}
	all := make(map[string]PortRecord, len(list))
	for _, p := range list {
		all[fmt.Sprintf("%s/%s/%d", p.Bus, p.Device, p.Index)] = p
	}
	return all, nil
}

type EswitchRecord struct {
	Mode string `json:"mode"` // "legacy" or "switchdev"
}

// Eswitches lists the devices with an eswitch by handle, such as "pci/0000:03:00.0". The list is empty without
// CAP_NET_ADMIN.
func (Recorder) Eswitches() (map[string]EswitchRecord, error) {
	list, err := retryInterrupted(netlink.DevLinkGetDeviceList)
	if err != nil && !absent(err) {
		return nil, fmt.Errorf("list devlink devices: %w", err)
	}
	all := map[string]EswitchRecord{}
	for _, d := range list {
		if d.Attrs.Eswitch.Mode != "" {
			all[d.BusName+"/"+d.DeviceName] = EswitchRecord{strings.ToLower(d.Attrs.Eswitch.Mode)}
		}
	}
	return all, nil
}

type VDPARecord struct {
	MAC string `json:"mac,omitempty"`
}

// VDPAs lists the configurations of the vDPA devices by name. It returns an empty map if the kernel has no vDPA.
func (Recorder) VDPAs() (map[string]VDPARecord, error) {
	list, err := retryInterrupted(netlink.VDPAGetDevConfigList)
	if err != nil && !absent(err) {
		return nil, fmt.Errorf("list vDPA devices: %w", err)
	}
	all := make(map[string]VDPARecord, len(list))
	for _, c := range list {
		all[c.Name] = VDPARecord{c.Net.Cfg.MACAddr.String()}
	}
	return all, nil
}

// Uses returns how the host uses the interfaces of the current network namespace. uplinks are the interfaces of
// all next hops of the IPv4 and IPv6 default routes in all routing tables, sorted. others describes the use of each
// interface with an IP address or a route that is not a default route, such as "has the address 192.0.2.1/24".
// Link-local addresses and routes do not count. links are the interfaces of that network namespace.
func (Recorder) Uses(links []InterfaceRecord) (uplinks []string, others map[string]string, err error) {
	addresses, err := retryInterrupted(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := routes()
	if err != nil {
		return nil, nil, err
	}
	var objects []netlink.Nexthop
	if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.NHID != 0 }) {
		if objects, err = retryInterrupted(netlink.NexthopList); err != nil {
			return nil, nil, fmt.Errorf("list nexthop objects: %w", err)
		}
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Index] = l.Name
	}
	up, others := map[string]bool{}, map[string]string{}
	for _, route := range routes {
		for _, index := range interfacesOf(route, objects) {
			switch {
			case route.Type != unix.RTN_UNICAST: // unreachable and similar routes have no interface
			case isDefault(route):
				up[names[index]] = true
			case route.Table != unix.RT_TABLE_LOCAL && !route.Dst.IP.IsLinkLocalUnicast():
				others[names[index]] = "has a route to " + route.Dst.String()
			}
		}
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			others[names[a.LinkIndex]] = "has the address " + a.IPNet.String()
		}
	}
	delete(up, "") // an interface that was created after the others were listed
	delete(others, "")
	delete(others, "lo")
	return slices.Sorted(maps.Keys(up)), others, nil
}

func routes() (all []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := retryInterrupted(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		all = append(all, routes...)
	}
	return all, nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// interfacesOf returns the interfaces of a route's next hops. With net.ipv4.nexthop_compat_mode=0 the kernel shows only the
// ID of a nexthop object. Package netlink does not decode groups, so a group may have the interfaces of all objects.
func interfacesOf(r netlink.Route, objects []netlink.Nexthop) (indexes []int) {
	if r.LinkIndex > 0 {
		indexes = append(indexes, r.LinkIndex)
	}
	for _, hop := range r.MultiPath {
		indexes = append(indexes, hop.LinkIndex)
	}
	if len(indexes) > 0 || r.NHID == 0 {
		return indexes
	}
	isGroup := !slices.ContainsFunc(objects, func(o netlink.Nexthop) bool { return o.ID == r.NHID && o.OIF > 0 })
	for _, o := range objects {
		if o.OIF > 0 && (o.ID == r.NHID || isGroup) {
			indexes = append(indexes, int(o.OIF))
		}
	}
	return indexes
}
