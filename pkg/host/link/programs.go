package link

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// xdpModes are the ways in which an XDP program can be attached, with the flags that select them.
func xdpModes() map[string]uint32 {
	return map[string]uint32{"xdp": nl.XDP_FLAGS_DRV_MODE, "xdpgeneric": nl.XDP_FLAGS_SKB_MODE, "xdpoffload": unix.XDP_FLAGS_HW_MODE}
}

// readXDP reads the IDs of XDP programs. They remain when the interface moves, and can drop or read all frames.
func readXDP(xdp attribute, s Settings) error {
	attrs, err := attributes(xdp.value, 0)
	for _, a := range attrs {
		name := map[uint16]string{nl.IFLA_XDP_PROG_ID + 1: "xdp", nl.IFLA_XDP_PROG_ID + 2: "xdpgeneric", nl.IFLA_XDP_PROG_ID + 3: "xdpoffload"}[a.kind]
		if name == "" {
			continue
		}
		id, err := a.integer()
		if err != nil {
			return err
		}
		s[name] = fmt.Sprintf("program %d", id)
	}
	return err
}

var errForeign = errors.New("the program that was attached before cannot be attached again")

func (r route) detachXDP(index int, mode uint32, before string) error {
	if before != "" {
		return errForeign
	}
	none := int32(-1)
	xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(uint32(none)))
	xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(mode))
	return r.setlink(index, nl.NewIfInfomsg(unix.AF_UNSPEC), xdp)
}

// tcxPoints are the attach types of tc programs that belong to no qdisc (Linux 6.6, BPF_TCX_INGRESS, BPF_TCX_EGRESS).
// The kernel removes qdiscs when the interface moves, but not these programs.
func tcxPoints() map[string]uint32 { return map[string]uint32{"tcx-ingress": 46, "tcx-egress": 47} }

// query is the part of union bpf_attr for BPF_PROG_QUERY.
type query struct {
	index, point, flags, _ uint32
	ids                    unsafe.Pointer
	n, _                   uint32
	_                      unsafe.Pointer
	links                  unsafe.Pointer
	_                      [64]byte
}

// attached returns the IDs of the programs at an attach point, and the IDs of their links; 0 = no link.
func attached(index int, point uint32) (ids, links []uint32, err error) {
	ids, links = make([]uint32, 64), make([]uint32, 64)                                                                   // 64 = BPF_MPROG_MAX
	q := query{index: uint32(index), point: point, ids: unsafe.Pointer(&ids[0]), n: 64, links: unsafe.Pointer(&links[0])} // #nosec G103 -- bpf(2) takes pointers
	_, err = bpf(unix.BPF_PROG_QUERY, unsafe.Pointer(&q), unsafe.Sizeof(q))                                               // #nosec G103
	if err != nil {
		return nil, nil, err
	}
	return ids[:q.n], links[:q.n], nil
}

func bpf(command int, attr unsafe.Pointer, size uintptr) (fd int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// readPrograms reads the tc programs. A kernel or a process without BPF has none to show.
func readPrograms(index int, s Settings) {
	for name, point := range tcxPoints() {
		if ids, _, err := attached(index, point); err == nil && len(ids) > 0 {
			s[name] = fmt.Sprintf("programs %d", ids)
		}
	}
}

// detach detaches all programs at an attach point. It needs CAP_SYS_ADMIN.
func detach(index int, point uint32, before string) error {
	if before != "" {
		return errForeign
	}
	ids, links, err := attached(index, point)
	for n, id := range ids {
		open, id := unix.BPF_PROG_GET_FD_BY_ID, [4]uint32{id}
		if links[n] != 0 {
			open, id = unix.BPF_LINK_GET_FD_BY_ID, [4]uint32{links[n]}
		}
		fd, opened := bpf(open, unsafe.Pointer(&id), unsafe.Sizeof(id)) // #nosec G103
		if opened != nil {
			err = errors.Join(err, opened)
			continue
		}
		if links[n] != 0 {
			_, opened = bpf(unix.BPF_LINK_DETACH, unsafe.Pointer(&[4]uint32{uint32(fd)}), 16) // #nosec G103
		} else {
			_, opened = bpf(unix.BPF_PROG_DETACH, unsafe.Pointer(&[4]uint32{uint32(index), uint32(fd), point}), 16) // #nosec G103
		}
		err = errors.Join(err, opened, unix.Close(fd))
	}
	return err
}
