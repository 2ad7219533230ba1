package settings

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	bpf "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/pkg/host/stack"
	"devinfo-cni.io/test/difftest"
)

func TestUnlikeNamesSettingsThatDiffer(t *testing.T) {
	for _, test := range []struct {
		a, b Dump
		want []string
	}{
		{Dump{"promisc": "on", "alias": "61", "mode": "00"}, Dump{"noarp": "on", "mode": "01"}, []string{"alias", "mode", "noarp", "promisc"}},
		{Dump{"mode": "00"}, Dump{"mode": "00"}, nil},
		{Dump{"rings": "01", "ethtool-99": "01"}, nil, nil}, // the driver has answered only once
		{Dump{"rings": "01", "ethtool-99": "01"}, Dump{"rings": "02", "ethtool-99": "02"}, []string{"ethtool-99", "rings"}},
		{Dump{"rtnetlink-99": "sha256:aa"}, Dump{"rtnetlink-99": "sha256:ab"}, []string{"rtnetlink-99"}},
		{Dump{"rtnetlink-99": "sha256:aa"}, Dump{"rtnetlink-99": "sha512:ab"}, nil}, // of another build
		{Dump{"rtnetlink-99": "sha256:aa"}, Dump{"rtnetlink-99": "ab"}, []string{"rtnetlink-99"}},
	} {
		difftest.Equal(t, test.a.Unlike(test.b), test.want)
		difftest.Equal(t, test.b.Unlike(test.a), test.want)
	}
}

func TestTextIsForPeople(t *testing.T) {
	for value, want := range map[string]string{
		"": "none", "07": "7", "07000000": "7", "0700": "0700", "6d67": "\"mg\"", "programs [7]": "programs [7]",
	} {
		setting := "mode"
		if value == "6d67" {
			setting = "alias"
		}
		difftest.Same(t, value, Dump{setting: value}.Text(setting), want)
	}
	difftest.Equal(t, []int{len(short(make([]byte, 128))), len(short(make([]byte, 129)))}, []int{256, len("sha256:") + 64})
}

// A driver has no answer to many requests. What the process or the kernel lacks is no such answer: what a pod has set would
// stay for the next one.
func TestOnlyADriverHasNoAnswer(t *testing.T) {
	ops := []netlink.GenlOp{{ID: unix.ETHTOOL_MSG_RINGS_GET, Flags: unix.GENL_CMD_CAP_DUMP}, {ID: unix.ETHTOOL_MSG_WOL_GET, Flags: unix.GENL_CMD_CAP_DUMP}}
	wol := rtnetlink.Attribute{Kind: 2, Value: []byte{7, 0, 0, 0}, Raw: []byte{8, 0, 2, 0, 7, 0, 0, 0}}
	for failed, want := range map[error]error{
		syscall.EOPNOTSUPP: nil, syscall.EPERM: nil, syscall.EINVAL: nil, syscall.EIO: nil, syscall.EBUSY: nil, syscall.ENODEV: nil,
		syscall.EMFILE: syscall.EMFILE, syscall.ENFILE: syscall.ENFILE, syscall.ENOMEM: syscall.ENOMEM, syscall.ENOBUFS: syscall.ENOBUFS,
		syscall.EINTR: syscall.EINTR, syscall.EBADMSG: syscall.EBADMSG, os.ErrClosed: os.ErrClosed,
	} {
		s := Dump{}
		err := readAnswers(ops, func(command uint8) ([]rtnetlink.Attribute, error) {
			if command == unix.ETHTOOL_MSG_RINGS_GET {
				return nil, failed
			}
			return []rtnetlink.Attribute{wol}, nil
		}, s)
		if difftest.Is(t, err, want); want == nil {
			difftest.Equal(t, s, Dump{"wol": "0800020007000000"})
		}
	}
}

// An interface that vanishes while it is read would have no settings of ethtool.
func TestEthtoolOfAnInterfaceThatVanishedIsAnError(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		c := rtnetlink.Dial()
		defer c.Close()
		difftest.Is(t, readEthtool(c, 1000, Dump{}), rtnetlink.ErrNoInterface)
		one, err := nl.Subscribe(unix.NETLINK_GENERIC)
		difftest.Must(t, err, one.Close())
		_, err = askEthtool(map[int]*nl.SocketHandle{unix.NETLINK_GENERIC: {Socket: one}}, unix.GENL_ID_CTRL, 1, unix.ETHTOOL_MSG_RINGS_GET)
		difftest.Says(t, err, "use of closed file") // each request uses it
	})
}

// Few drivers take programs to the hardware, and the namespaces of tests have no such driver.
func TestProgramsOfEachXDPModeAreRead(t *testing.T) {
	xdp := nl.NewRtAttr(unix.IFLA_XDP, nil)
	xdp.AddRtAttr(nl.IFLA_XDP_ATTACHED, []byte{4})
	for mode, attr := range []int{nl.IFLA_XDP_PROG_ID, nl.IFLA_XDP_PROG_ID + 1, nl.IFLA_XDP_PROG_ID + 2, nl.IFLA_XDP_PROG_ID + 3} {
		xdp.AddRtAttr(attr, nl.Uint32Attr(uint32(70+mode)))
	}
	got, err := dump(parsed(xdp, nl.NewRtAttr(unix.IFLA_STATS, []byte{1}), nl.NewRtAttr(200, []byte{2, 3})))
	difftest.Must(t, err)
	difftest.Equal(t, got, Dump{"rtnetlink-200": "0203", "xdp": "program 71", "xdpgeneric": "program 72", "xdpoffload": "program 73"})
	id := nl.NewRtAttr(unix.IFLA_XDP, nil)
	id.AddRtAttr(nl.IFLA_XDP_PROG_ID+1, []byte{7})
	for _, broken := range []*nl.RtAttr{id, nl.NewRtAttr(unix.IFLA_XDP, []byte{1})} {
		_, err = dump(parsed(broken))
		difftest.Is(t, err, syscall.EBADMSG)
	}
}

// A driver that takes them for none would detach those of the host after DEL, as if they were the pod's.
func TestProgramsThatCannotBeReadAreNotNone(t *testing.T) {
	two := &bpf.QueryResult{Programs: []bpf.AttachedProgram{{ID: 7}, {ID: 9}}}
	for _, test := range []struct {
		found *bpf.QueryResult
		err   error
		want  string
		fails bool
	}{
		{two, nil, "programs [7 9]", false},
		{&bpf.QueryResult{}, nil, "", false},
		{nil, fmt.Errorf("query programs: %w", ebpf.ErrNotSupported), "", false}, // before Linux 4.15
		{nil, fmt.Errorf("query programs: %w", syscall.EINVAL), "", false},       // before Linux 6.6
		{nil, syscall.EPERM, "", false},
		{nil, syscall.ENODEV, "", false}, // the next read says that the interface is gone
		{nil, fmt.Errorf("query programs: %w", syscall.ENOSPC), "", true},
		{nil, syscall.ENOMEM, "", true},
	} {
		got, err := programs(test.found, test.err)
		difftest.Equal(t, got, test.want)
		difftest.Same(t, fmt.Sprint(test.err), err != nil, test.fails)
	}
}

// The namespaces of tests have no hardware.
func TestEachInterfaceOfHardwareHasACondition(t *testing.T) {
	bus := func(l rtnetlink.Link) string { return map[string]string{"eth0": "0000:01:00.0"}[l.Name] }
	uppers := map[int][]stack.Upper{2: {{Name: "spy", Kind: "macvlan", Netns: "/proc/7/ns/net"}}}
	links := []rtnetlink.Link{
		{Name: "br0", Index: 1}, {Name: "eth0", Index: 2, MAC: make([]byte, 6)}, {Name: "eth1", Index: 3, Parent: "0000:01:00.1", MAC: []byte{2, 0, 0, 0, 0, 1}}, {Name: "ib0", Index: 4, Parent: "0000:02:00.0"},
	}
	got, err := conditions(links, bus, uppers, map[string]string{"b": "net1 in /proc/7/ns/net", "a": "net1 in /proc/8/ns/net"})
	difftest.Must(t, err)
	difftest.Equal(t, got, []Condition{
		{Device: "0000:01:00.0", Name: "eth0", Zero: true, Dump: Dump{}, Uppers: []string{"macvlan spy in /proc/7/ns/net"}},
		{Device: "0000:01:00.1", Name: "eth1", Dump: Dump{}}, {Device: "0000:02:00.0", Name: "ib0", Dump: Dump{}},
		{Device: "a", Elsewhere: "net1 in /proc/8/ns/net"}, {Device: "b", Elsewhere: "net1 in /proc/7/ns/net"},
	})
	broken := parsed(nl.NewRtAttr(unix.IFLA_XDP, []byte{1}))
	broken.Parent = "0000:01:00.0"
	_, err = conditions([]rtnetlink.Link{broken}, bus, nil, nil)
	difftest.Is(t, err, syscall.EBADMSG)
}

// The kernel of the answer to put back may have had more features, or fewer.
func TestOnlyFeaturesThatDifferAreSet(t *testing.T) {
	bits := func(value, mask []byte) []byte {
		a := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_WANTED|unix.NLA_F_NESTED, nil)
		a.AddRtAttr(unix.ETHTOOL_A_BITSET_SIZE, nl.Uint32Attr(uint32(8*len(value))))
		a.AddRtAttr(unix.ETHTOOL_A_BITSET_VALUE, value)
		a.AddRtAttr(unix.ETHTOOL_A_BITSET_MASK, mask)
		return a.Serialize()
	}
	for _, test := range []struct{ to, now, mask []byte }{
		{[]byte{7, 0, 0, 0}, []byte{5, 0, 0, 1}, []byte{2, 0, 0, 1}},
		{[]byte{7, 0, 0, 0}, []byte{5, 0, 0, 0, 9, 0, 0, 0}, []byte{2, 0, 0, 0}},
		{[]byte{7, 0, 0, 0, 9, 0, 0, 0}, []byte{5, 0, 0, 0}, []byte{2, 0, 0, 0, 9, 0, 0, 0}},
	} {
		list, err := rtnetlink.Attributes(append(bits(test.to, nil), bits(test.now, nil)...), 0)
		difftest.Must(t, err)
		difftest.Equal(t, changedBits(list[0], list[1]), bits(test.to, test.mask))
	}
}
