package listing

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// Uses returns how the host uses the interfaces of the current network namespace. uplinks are the interfaces of
// all next hops of the IPv4 and IPv6 default routes in all routing tables, sorted. advertised are those of them whose
// default routes all come from router advertisements. others describes the use of each
// interface with an IP address or a route that is not a default route, such as "has the address 192.0.2.1/24".
// Link-local addresses and routes do not count. links are the interfaces of that network namespace.
func Uses(links []Interface) (uplinks, advertised []string, others map[string]string, err error) {
	addresses, err := rtnetlink.Retry(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, nil, nil, fmt.Errorf("list addresses: %w", err)
	}
	routes, err := routes()
	if err != nil {
		return nil, nil, nil, err
	}
	var objects []netlink.Nexthop
	if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.NHID != 0 }) {
		if objects, err = rtnetlink.Retry(netlink.NexthopList); err != nil {
			return nil, nil, nil, fmt.Errorf("list nexthop objects: %w", err)
		}
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Index] = l.Name
	}
	byRouter, others := map[string]bool{}, map[string]string{} // whether all default routes of an interface are advertised
	for _, route := range routes {
		for _, index := range interfacesOf(route, objects) {
			switch {
			case route.Type != unix.RTN_UNICAST: // unreachable and similar routes have no interface
			case isDefault(route):
				so, known := byRouter[names[index]]
				byRouter[names[index]] = (so || !known) && route.Protocol == unix.RTPROT_RA
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
	delete(byRouter, "") // an interface that was created after the others were listed
	delete(others, "")
	delete(others, "lo")
	advertised = []string{} // nil means unknown in a capture
	for _, name := range slices.Sorted(maps.Keys(byRouter)) {
		if uplinks = append(uplinks, name); byRouter[name] {
			advertised = append(advertised, name)
		}
	}
	return uplinks, advertised, others, nil
}

func routes() (all []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := rtnetlink.Retry(func() ([]netlink.Route, error) {
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
