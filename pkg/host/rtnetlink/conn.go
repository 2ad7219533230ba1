// Package rtnetlink sends requests for network interfaces to the kernel and parses the answers, rtnetlink(7). Programs
// use packages link, listing and settings, which are built on it.
package rtnetlink

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// Local is our netnsid for the socket's own network namespace. The kernel uses netnsids from 0 for other
	// namespaces and -1 for none.
	Local = -2

	// SkipStats is RTEXT_FILTER_SKIP_STATS (Linux 4.4), because some drivers read their counters from the firmware.
	// Without RTEXT_FILTER_VF, the answer has no VFs either.
	SkipStats = 1 << 3
)

// ErrNoInterface is the error for an interface that does not exist in the network namespace.
var ErrNoInterface = errors.New("no such network interface")

// Conn is a routing socket in a network namespace.
type Conn struct {
	socket *nl.SocketHandle
	err    error // of opening the socket, which each request returns
}

// Dial opens a routing socket in the network namespace of the calling thread. If that fails, each request does.
func Dial() Conn {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	return Conn{&nl.SocketHandle{Socket: s}, err}
}

// Close closes the socket.
func (c Conn) Close() {
	if c.err == nil {
		c.socket.Close()
	}
}

func (c Conn) execute(req *nl.NetlinkRequest, answer uint16) ([][]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	return req.Execute(unix.NETLINK_ROUTE, answer)
}

// Get returns one interface, by index or by an attribute, in the network namespace nsid. It never lists all interfaces.
// filter is a mask of RTEXT_FILTER_*. If the interface does not exist, the error is ErrNoInterface.
func (c Conn) Get(nsid, index int, filter uint32, attrs ...*nl.RtAttr) (Link, error) {
	if nsid != Local {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(nsid))))
	}
	answer, err := Retry(func() ([]byte, error) { return c.one(c.getlink(0, index, filter, attrs...)) })
	if errors.Is(err, syscall.ENODEV) {
		err = ErrNoInterface
	}
	if err != nil {
		return Link{}, err
	}
	return ParseLink(answer, nsid)
}

// Links lists all interfaces of the socket's network namespace.
func (c Conn) Links(filter uint32) ([]Link, error) {
	answers, err := Retry(func() ([][]byte, error) { return c.execute(c.getlink(unix.NLM_F_DUMP, 0, filter), unix.RTM_NEWLINK) })
	list, broken := parseLinks(answers)
	if err = cmp.Or(broken, err); err != nil {
		err = fmt.Errorf("list interfaces: %w", err)
	}
	return list, err
}

func parseLinks(answers [][]byte) (list []Link, err error) {
	for _, answer := range answers {
		l, err := ParseLink(answer, Local)
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, nil
}

func (c Conn) getlink(flags, index int, filter uint32, attrs ...*nl.RtAttr) *nl.NetlinkRequest {
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	return c.request(unix.RTM_GETLINK, flags, msg, append(attrs, nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(filter)))...)
}

// one requests one interface. The answer can be too large for the library's buffer of 64 KiB, because the kernel
// allows almost as much for the altnames alone. The answer is in the socket's queue when Send returns.
func (c Conn) one(req *nl.NetlinkRequest) ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	if err := c.socket.Socket.Send(req); err != nil {
		return nil, err
	}
	for {
		messages, err := c.receive()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch {
			case m.Header.Seq != req.Seq: // the rest of a dump that failed
			case m.Header.Type == unix.RTM_NEWLINK:
				return m.Data, nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return nil, syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			}
		}
	}
}

// receive returns the messages of the next datagram in the socket's queue, or none if it is not from the kernel: a
// program with CAP_NET_ADMIN in the pod's network namespace can send to this socket too.
func (c Conn) receive() ([]syscall.NetlinkMessage, error) {
	size, _, err := unix.Recvfrom(c.socket.Socket.GetFd(), nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		return nil, err
	}
	buffer := make([]byte, size)
	n, from, err := unix.Recvfrom(c.socket.Socket.GetFd(), buffer, 0)
	if err != nil {
		return nil, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != nl.PidKernel {
		return nil, nil
	}
	return syscall.ParseNetlinkMessage(buffer[:n])
}

func (c Conn) request(command, flags int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: c.socket}
	req.AddData(header)
	for _, a := range attrs {
		req.AddData(a)
	}
	return req
}

// SetLink changes an interface by RTM_SETLINK. It needs CAP_NET_ADMIN.
func (c Conn) SetLink(index int, msg *nl.IfInfomsg, attrs ...*nl.RtAttr) error {
	msg.Index = int32(index)
	_, err := c.execute(c.request(unix.RTM_SETLINK, unix.NLM_F_ACK, msg, attrs...), 0)
	return err
}

// NewLink creates an interface by RTM_NEWLINK. It needs CAP_NET_ADMIN.
func (c Conn) NewLink(attrs ...*nl.RtAttr) error {
	_, err := c.execute(c.request(unix.RTM_NEWLINK, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL, nl.NewIfInfomsg(unix.AF_UNSPEC), attrs...), 0)
	return err
}

// NSID returns the netnsid of an open network namespace in the socket's namespace. ok is false if it has none.
func (c Conn) NSID(netns int) (id int, ok bool, err error) {
	req := c.request(unix.RTM_GETNSID, 0, nl.NewRtGenMsg(), nl.NewRtAttr(unix.NETNSA_FD, nl.Uint32Attr(uint32(netns))))
	answers, err := c.execute(req, unix.RTM_NEWNSID)
	for _, answer := range answers {
		var attrs []Attribute
		attrs, err = Attributes(answer, nl.NewRtGenMsg().Len())
		for _, a := range attrs {
			if a.Kind == unix.NETNSA_NSID {
				id, err = a.Int()
				return id, err == nil && id >= 0, err
			}
		}
	}
	return 0, false, err
}

// BusInfo returns ethtool's bus_info of an interface in the socket's network namespace that has no Parent, as before Linux
// 5.14, or is on the bus virtio, and "" for others or on an error. The ioctl works on any socket.
func (c Conn) BusInfo(l Link) string {
	if c.err != nil || l.NSID != Local || l.Parent != "" && l.Bus != "virtio" {
		return ""
	}
	info, err := unix.IoctlGetEthtoolDrvinfo(c.socket.Socket.GetFd(), l.Name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Bus_info[:])
}
