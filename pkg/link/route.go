package link

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uplinks names the interfaces of our own network namespace that default routes of IPv4
// and IPv6 lead to, in any routing table and by any of their next hops, sorted.
func (r Recorder) Uplinks() ([]string, error) {
	routes, err := r.routes()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, route := range routes {
		if !isDefault(route) || route.Type != unix.RTN_UNICAST { // unreachable and the like lead nowhere
			continue
		}
		for _, index := range interfacesOf(route) {
			name, err := nameOf(index)
			if err != nil {
				return nil, err
			}
			if name != "" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Uses says of interfaces of our own network namespace, by their names, what the host uses them
// for: they have an IP address, or a route leads to them. What is link-local does not count, nor
// a default route: see [Recorder.Uplinks].
func (r Recorder) Uses() (map[string]string, error) {
	addresses, err := patiently(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := r.routes()
	if err != nil {
		return nil, err
	}
	why := map[int]string{}
	for _, route := range routes {
		if isDefault(route) || route.Type != unix.RTN_UNICAST || route.Table == unix.RT_TABLE_LOCAL || route.Dst.IP.IsLinkLocalUnicast() {
			continue
		}
		for _, index := range interfacesOf(route) {
			why[index] = "has a route to " + route.Dst.String()
		}
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			why[a.LinkIndex] = "has the address " + a.IPNet.String()
		}
	}
	uses := map[string]string{}
	for index, text := range why {
		name, err := nameOf(index)
		if err != nil {
			return nil, err
		}
		if name != "" && name != "lo" {
			uses[name] = text
		}
	}
	return uses, nil
}

// nameOf gives the name of an interface; "" = it is gone.
func nameOf(index int) (string, error) {
	l, err := patiently(func() (netlink.Link, error) { return netlink.LinkByIndex(index) })
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("interface %d: %w", index, err)
	}
	return l.Attrs().Name, nil
}

// routes are those of IPv4 and IPv6, in any table.
func (Recorder) routes() (all []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := patiently(func() ([]netlink.Route, error) {
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

// interfacesOf are those that a route leads to, by index.
func interfacesOf(r netlink.Route) (indexes []int) {
	if r.LinkIndex > 0 {
		indexes = append(indexes, r.LinkIndex)
	}
	for _, hop := range r.MultiPath {
		indexes = append(indexes, hop.LinkIndex)
	}
	return indexes
}
