package link

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
)

// Addresses lists the IP addresses, with the lengths of their prefixes, of an interface in
// our own network namespace, but for link-local ones; none if there is no such interface.
func (Recorder) Addresses(name string) (list []string, err error) {
	l, err := patiently(func() (netlink.Link, error) { return netlink.LinkByName(name) })
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("interface %q: %w", name, err)
	}
	addresses, err := patiently(func() ([]netlink.Addr, error) { return netlink.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("interface %q: list addresses: %w", name, err)
	}
	for _, a := range addresses {
		if !a.IP.IsLinkLocalUnicast() {
			list = append(list, a.IPNet.String())
		}
	}
	return list, nil
}
