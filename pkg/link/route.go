package link

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Uses returns how the host uses the interfaces of the current network namespace. uplinks are the interfaces of
// all next hops of the IPv4 and IPv6 default routes in all routing tables, sorted. others describes the use of each
// interface with an IP address or a route that is not a default route, such as "has the address 192.0.2.1/24".
// Link-local addresses and routes do not count.
func (Recorder) Uses() (uplinks []string, others map[string]string, err error) {
	addresses, err := retryInterrupted(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := routes()
	if err != nil {
		return nil, nil, err
	}
	up, why := map[int]bool{}, map[int]string{}
	for _, route := range routes {
		for _, index := range interfacesOf(route) {
			switch {
			case route.Type != unix.RTN_UNICAST: // unreachable and similar routes have no interface
			case isDefault(route):
				up[index] = true
			case route.Table != unix.RT_TABLE_LOCAL && !route.Dst.IP.IsLinkLocalUnicast():
				why[index] = "has a route to " + route.Dst.String()
			}
		}
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			why[a.LinkIndex] = "has the address " + a.IPNet.String()
		}
	}
	of, err := byName(up)
	if err != nil {
		return nil, nil, err
	}
	others, err = byName(why)
	delete(others, "lo")
	return slices.Sorted(maps.Keys(of)), others, err
}

// byName converts the keys from index to name. It drops interfaces that no longer exist.
func byName[V any](byIndex map[int]V) (map[string]V, error) {
	all := map[string]V{}
	for index, value := range byIndex {
		l, err := retryInterrupted(func() (netlink.Link, error) { return netlink.LinkByIndex(index) })
		switch {
		case err == nil:
			all[l.Attrs().Name] = value
		case !errors.As(err, new(netlink.LinkNotFoundError)):
			return nil, fmt.Errorf("interface %d: %w", index, err)
		}
	}
	return all, nil
}

// routes returns the routes of IPv4 and IPv6 in all tables.
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

// interfacesOf returns the interfaces of a route, by index.
func interfacesOf(r netlink.Route) (indexes []int) {
	if r.LinkIndex > 0 {
		indexes = append(indexes, r.LinkIndex)
	}
	for _, hop := range r.MultiPath {
		indexes = append(indexes, hop.LinkIndex)
	}
	return indexes
}
