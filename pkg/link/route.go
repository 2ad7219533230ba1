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
func (Recorder) Uplinks() ([]string, error) {
	var names []string
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
		for _, index := range uplinks(routes) {
			l, err := netlink.LinkByIndex(index)
			if errors.As(err, new(netlink.LinkNotFoundError)) {
				continue // gone meanwhile, with its route
			} else if err != nil {
				return nil, fmt.Errorf("interface %d of a default route: %w", index, err)
			}
			names = append(names, l.Attrs().Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// uplinks are the interfaces of the default routes among routes, by index.
func uplinks(routes []netlink.Route) (indexes []int) {
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if r.Type != unix.RTN_UNICAST {
			continue // unreachable and the like lead nowhere
		}
		if r.LinkIndex > 0 {
			indexes = append(indexes, r.LinkIndex)
		}
		for _, hop := range r.MultiPath {
			indexes = append(indexes, hop.LinkIndex)
		}
	}
	return indexes
}
