package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// maxDepth is the maximum number of nested lower interfaces, as in the kernel (MAX_NEST_DEV).
	maxDepth = 8

	// maxAltName is the size of an altname with its NUL (ALTIFNAMSIZ, include/uapi/linux/if.h).
	maxAltName = 128

	// local is our netnsid for the socket's own network namespace. The kernel uses netnsids from 0 for other
	// namespaces and -1 for none.
	local = -2

	// rtextFilterSkipStats is RTEXT_FILTER_SKIP_STATS (Linux 4.4), because some drivers read their counters from the
	// firmware. Without RTEXT_FILTER_VF, the answer has no VFs either.
	rtextFilterSkipStats = 1 << 3
)

// route is a routing socket in a network namespace.
type route struct{ socket *nl.SocketHandle }

func dial(path string) (route, error) {
	var s *nl.NetlinkSocket
	err := within(path, func() (err error) {
		s, err = nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
		return err
	})
	if err != nil && s != nil {
		s.Close()
	}
	return route{&nl.SocketHandle{Socket: s}}, err
}

// found is an interface with the links to its lower interface.
type found struct {
	Interface
	netnsid   int // network namespace of the request
	link      int // IFLA_LINK: index of the lower interface, or of the peer of a veth
	linkNetns int // IFLA_LINK_NETNSID; netnsid if the attribute is missing
	master    int // IFLA_MASTER: index of the master
}

// get returns one interface, by index or by an attribute, in the network namespace netnsid. It never lists all
// interfaces.
func (r route) get(netnsid, index int, attrs ...*nl.RtAttr) (found, error) {
	if netnsid != local {
		attrs = append(attrs, nl.NewRtAttr(unix.IFLA_TARGET_NETNSID, nl.Uint32Attr(uint32(netnsid))))
	}
	answers, err := r.links(0, index, rtextFilterSkipStats, attrs...)
	if err != nil {
		return found{}, err
	}
	return parse(answers[0], netnsid)
}

// links requests one interface, or all with NLM_F_DUMP. filter is a mask of RTEXT_FILTER_*.
func (r route) links(flags uint16, index int, filter uint32, attrs ...*nl.RtAttr) ([][]byte, error) {
	return retryInterrupted(func() ([][]byte, error) {
		msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
		msg.Index = int32(index)
		req := r.request(unix.RTM_GETLINK, msg, append(attrs, nl.NewRtAttr(unix.IFLA_EXT_MASK, nl.Uint32Attr(filter)))...)
		req.Flags |= flags
		if flags&unix.NLM_F_DUMP == 0 {
			return r.one(req)
		}
		return req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	})
}

// one requests one interface. The answer can be too large for the library's buffer of 64 KiB, because the kernel
// allows almost as much for the altnames alone. The answer is in the socket's queue when Send returns.
func (r route) one(req *nl.NetlinkRequest) ([][]byte, error) {
	if err := r.socket.Socket.Send(req); err != nil {
		return nil, err
	}
	for {
		messages, err := r.receive()
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch {
			case m.Header.Seq != req.Seq: // the rest of a dump that failed
			case m.Header.Type == unix.RTM_NEWLINK:
				return [][]byte{m.Data}, nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return nil, syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			}
		}
	}
}

// receive returns the messages of the next datagram in the socket's queue, or none if it is not from the kernel: a
// program with CAP_NET_ADMIN in the pod's network namespace can send to this socket too.
func (r route) receive() ([]syscall.NetlinkMessage, error) {
	size, _, err := unix.Recvfrom(r.socket.Socket.GetFd(), nil, unix.MSG_PEEK|unix.MSG_TRUNC)
	if err != nil {
		return nil, err
	}
	buffer := make([]byte, size)
	n, from, err := unix.Recvfrom(r.socket.Socket.GetFd(), buffer, 0)
	if err != nil {
		return nil, err
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != nl.PidKernel {
		return nil, nil
	}
	return syscall.ParseNetlinkMessage(buffer[:n])
}

func (r route) request(command int, header nl.NetlinkRequestData, attrs ...*nl.RtAttr) *nl.NetlinkRequest {
	req := nl.NewNetlinkRequest(command, 0)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: r.socket}
	req.AddData(header)
	for _, a := range attrs {
		req.AddData(a)
	}
	return req
}

func parse(answer []byte, netnsid int) (found, error) {
	attrs, err := attributes(answer, unix.SizeofIfInfomsg)
	if err != nil {
		return found{}, err
	}
	f := found{netnsid: netnsid, linkNetns: netnsid}
	f.Index = int(nl.DeserializeIfInfomsg(answer).Index)
	requested := local
	for _, a := range attrs {
		if a.kind == unix.IFLA_TARGET_NETNSID {
			requested, err = a.integer()
		} else {
			err = f.take(a)
		}
		if err != nil {
			return found{}, err
		}
	}
	f.Child = IPoIBChild(f.Kind, f.link != 0)
	if requested != netnsid {
		// Linux before 4.15 ignores the attribute and returns an interface of the same name in the socket's network
		// namespace.
		return found{}, syscall.EOPNOTSUPP
	}
	return f, nil
}

func (f *found) take(a attribute) (err error) {
	switch a.kind {
	case unix.IFLA_IFNAME:
		f.Name = a.text()
	case unix.IFLA_ADDRESS:
		f.MAC = net.HardwareAddr(a.value)
	case unix.IFLA_MTU:
		f.MTU, err = a.integer()
	case unix.IFLA_PARENT_DEV_BUS_NAME:
		f.Bus = a.text()
	case unix.IFLA_PARENT_DEV_NAME:
		f.Parent = a.text()
	case unix.IFLA_PHYS_PORT_NAME:
		f.PortName = a.text()
	case unix.IFLA_LINKINFO:
		f.Kind, err = kind(a)
	case unix.IFLA_MASTER:
		f.master, err = a.integer()
	case unix.IFLA_LINK:
		f.link, err = a.integer()
	case unix.IFLA_LINK_NETNSID:
		f.linkNetns, err = a.integer()
		if f.link == 0 {
			f.link = f.Index // Linux before 5.11 omits IFLA_LINK if both interfaces have the same index
		}
	}
	return err
}

func kind(linkinfo attribute) (string, error) {
	attrs, err := attributes(linkinfo.value, 0)
	for _, a := range attrs {
		if a.kind == nl.IFLA_INFO_KIND {
			return a.text(), nil
		}
	}
	return "", err
}

func (r route) describe(f found, depth int) (Interface, error) {
	i := f.Interface
	if (i.Parent == "" || i.Bus == "virtio") && f.netnsid == local {
		i.BusInfo = r.busInfo(i.Name)
	}
	if !i.Stacked() || f.link == 0 || depth == 0 {
		return i, nil
	}
	lower, err := r.lower(f, depth-1)
	if err != nil && !absent(err) && !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
		return Interface{}, fmt.Errorf("lower interface of %s: %w", i.Name, err)
	}
	i.Lower = lower
	return i, nil
}

// lower returns the lower interface. If it is in the current network namespace and the kernel refused the request or
// returned no parent, lower requests it again on a socket of that namespace, which ethtool and further netnsids need.
func (r route) lower(upper found, depth int) (*Interface, error) {
	f, err := r.get(upper.linkNetns, upper.link)
	if (err != nil || f.Parent == "") && r.isOurs(upper.linkNetns) {
		ours, dialed := dial("")
		if dialed != nil {
			return nil, dialed
		}
		defer ours.socket.Close()
		r = ours
		f, err = r.get(local, upper.link)
	}
	if err != nil {
		return nil, err
	}
	i, err := r.describe(f, depth)
	return &i, err
}

func (r route) isOurs(netnsid int) bool {
	if netnsid < 0 {
		return false
	}
	fd, err := unix.Open(ourNetns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	req := r.request(unix.RTM_GETNSID, nl.NewRtGenMsg(), nl.NewRtAttr(unix.NETNSA_FD, nl.Uint32Attr(uint32(fd))))
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNSID)
	if err != nil || len(answers) != 1 {
		return false
	}
	attrs, _ := attributes(answers[0], nl.NewRtGenMsg().Len())
	for _, a := range attrs {
		if a.kind == unix.NETNSA_NSID {
			id, err := a.integer()
			return err == nil && id == netnsid
		}
	}
	return false
}

// busInfo returns ethtool's bus_info, which is needed before Linux 5.14, or "" on an error. The ioctl works on any
// socket, and reads in the socket's network namespace.
func (r route) busInfo(name string) string {
	info, err := unix.IoctlGetEthtoolDrvinfo(r.socket.Socket.GetFd(), name)
	if err != nil {
		return ""
	}
	return unix.ByteSliceToString(info.Bus_info[:])
}
