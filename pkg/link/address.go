package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

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
