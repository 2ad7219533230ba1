package link

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

const (
	// maxDepth is the maximum number of nested lower interfaces, as in the kernel (MAX_NEST_DEV).
	maxDepth = 8

	// maxAltName is the size of an altname with its NUL (ALTIFNAMSIZ, include/uapi/linux/if.h).
	maxAltName = 128
)

func dial(path string) (c rtnetlink.Conn, err error) {
	err = Within(path, func() error {
		c = rtnetlink.Dial()
		return nil
	})
	return c, err
}

// describe returns an interface with its lower interfaces, at most depth.
func describe(c rtnetlink.Conn, l rtnetlink.Link, depth int) (Interface, error) {
	i := Interface{
		Name: l.Name, Index: l.Index, Kind: l.Kind, MAC: l.MAC, PermMAC: l.PermMAC, MTU: l.MTU, Bus: l.Bus, Parent: l.Parent, PortName: l.PortName,
		Child: IPoIBChild(l.Kind, l.Lower != 0), BusInfo: c.BusInfo(l),
	}
	if !i.Stacked() || l.Lower == 0 || depth == 0 {
		return i, nil
	}
	below, err := lower(c, l, depth-1)
	if err != nil && !rtnetlink.Absent(err) && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
		return Interface{}, fmt.Errorf("lower interface of %s: %w", i.Name, err)
	}
	i.Lower = below
	return i, nil
}

// lower returns the lower interface. If it is in the current network namespace and the kernel refused the request or
// returned no parent, lower requests it again on a socket of that namespace, which ethtool and further netnsids need.
func lower(c rtnetlink.Conn, upper rtnetlink.Link, depth int) (*Interface, error) {
	l, err := c.Get(upper.LowerNSID, upper.Lower, rtnetlink.SkipStats)
	if upper.LowerNSID >= 0 && (err != nil || l.Parent == "") {
		ours, unknown := isOurs(c, upper.LowerNSID)
		if unknown != nil {
			return nil, unknown
		}
		if ours {
			c = rtnetlink.Dial()
			defer c.Close()
			l, err = c.Get(rtnetlink.Local, upper.Lower, rtnetlink.SkipStats)
		}
	}
	if err != nil {
		return nil, err
	}
	i, err := describe(c, l, depth)
	return &i, err
}

// isOurs reports whether a netnsid of the socket's namespace means the current network namespace.
func isOurs(c rtnetlink.Conn, nsid int) (bool, error) {
	here, err := os.Open(ourNetns)
	if err != nil {
		return false, err
	}
	defer here.Close()
	id, ok, err := c.NSID(int(here.Fd()))
	return ok && id == nsid, err
}
