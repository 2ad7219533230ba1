package settings

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"github.com/cilium/ebpf"
	bpf "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
)

// xdpModes are the ways in which an XDP program can be attached.
var xdpModes = map[string]struct {
	flag uint32 // selects it
	id   uint16 // attribute with the ID of its program
}{
	"xdp":        {nl.XDP_FLAGS_DRV_MODE, nl.IFLA_XDP_PROG_ID + 1},
	"xdpgeneric": {nl.XDP_FLAGS_SKB_MODE, nl.IFLA_XDP_PROG_ID + 2},
	"xdpoffload": {unix.XDP_FLAGS_HW_MODE, nl.IFLA_XDP_PROG_ID + 3},
}

// readXDP reads the IDs of XDP programs. They remain when the interface moves, and can drop or read all frames.
func readXDP(xdp rtnetlink.Attribute, s Dump) error {
	attrs, err := rtnetlink.Attributes(xdp.Value, 0)
	for name, mode := range xdpModes {
		if a, is := byKind(attrs)[mode.id]; is {
			id, broken := a.Int()
			s[name], err = fmt.Sprintf("program %d", id), cmp.Or(err, broken)
		}
	}
	return err
}

// detachXDP detaches the program of a mode. The kernel refuses this with EBUSY while a bpf_link attaches it, which a
// process or a pinned file keeps (net/core/dev.c, dev_xdp_attach). Only the link itself can then be detached.
func detachXDP(c rtnetlink.Conn, index int, mode string) error {
	none := int32(-1)
	xdp := nl.NewRtAttr(unix.IFLA_XDP|unix.NLA_F_NESTED, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_FD, nl.Uint32Attr(uint32(none)))
	xdp.AddRtAttr(nl.IFLA_XDP_FLAGS, nl.Uint32Attr(xdpModes[mode].flag))
	err := c.SetLink(index, nl.NewIfInfomsg(unix.AF_UNSPEC), xdp)
	if !errors.Is(err, syscall.EBUSY) {
		return err
	}
	now, err := get(c, index)
	if err != nil {
		return err
	}
	return detachXDPLink(index, now[mode])
}

// detachXDPLink detaches the bpf_link of a program, "program 7". A link tells the index of its interface, but not its
// network namespace, so that two links of one program cannot always be told apart.
func detachXDPLink(index int, program string) error {
	var found []bpf.ID
	all := bpf.Iterator{}
	defer all.Close()
	for all.Next() {
		info, err := all.Link.Info()
		if err != nil || info.XDP() == nil {
			continue
		}
		if int(info.XDP().Ifindex) == index && fmt.Sprintf("program %d", info.Program) == program {
			found = append(found, info.ID)
		}
	}
	switch {
	case all.Err() != nil:
		return fmt.Errorf("list BPF links: %w", all.Err())
	case len(found) != 1:
		return fmt.Errorf("%s is attached by a BPF link, and %d links have it on an interface %d: detach the right one with bpftool link detach", program, len(found), index)
	}
	return detachLink(found[0])
}

// tcxPoints are the attach types of tc programs that belong to no qdisc (Linux 6.6). The kernel removes qdiscs when the
// interface moves, but not these programs.
var tcxPoints = map[string]ebpf.AttachType{"tcx-ingress": ebpf.AttachTCXIngress, "tcx-egress": ebpf.AttachTCXEgress}

// readPrograms reads the tc programs.
func readPrograms(index int, s Dump) error {
	for name, point := range tcxPoints {
		found, err := programs(bpf.QueryPrograms(bpf.QueryOptions{Target: index, Attach: point}))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if found != "" {
			s[name] = found
		}
	}
	return nil
}

// programs returns what a [Dump] has of the programs at an attach point. A kernel or a process without BPF has none to show,
// nor has an interface that has vanished. After any other error there may be some: the kernel answers ENOSPC if one is added
// meanwhile. To take them for none would detach the host's own programs after the next pod.
func programs(found *bpf.QueryResult, err error) (string, error) {
	none := func(errno error) bool { return errors.Is(err, errno) }
	switch {
	case slices.ContainsFunc([]error{ebpf.ErrNotSupported, unix.ENOSYS, unix.EINVAL, unix.EPERM, unix.EACCES, unix.ENODEV}, none):
		return "", nil
	case err != nil || len(found.Programs) == 0:
		return "", err
	}
	var ids []ebpf.ProgramID
	for _, p := range found.Programs {
		ids = append(ids, p.ID)
	}
	return fmt.Sprintf("programs %d", ids), nil
}

// detach detaches all programs at an attach point. It needs CAP_SYS_ADMIN.
func detach(index int, point ebpf.AttachType) error {
	found, err := bpf.QueryPrograms(bpf.QueryOptions{Target: index, Attach: point})
	if err != nil {
		return err
	}
	for _, p := range found.Programs {
		if id, ok := p.LinkID(); ok {
			err = errors.Join(err, detachLink(id))
		} else {
			err = errors.Join(err, detachProgram(index, point, p.ID))
		}
	}
	return err
}

func detachLink(id bpf.ID) error {
	l, err := bpf.NewFromID(id)
	if err != nil {
		return err
	}
	return errors.Join(l.Detach(), l.Close())
}

func detachProgram(index int, point ebpf.AttachType, id ebpf.ProgramID) error {
	p, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return err
	}
	return errors.Join(bpf.RawDetachProgram(bpf.RawDetachProgramOptions{Target: index, Attach: point, Program: p}), p.Close())
}
