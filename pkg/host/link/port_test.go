package link

import (
	"errors"
	"fmt"
	"math"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/test/difftest"
)

// portAnswer is the answer for a port of 10000:e1:00.0, a PF in a PCI domain with five digits. It has all attributes
// that parsePort reads, and further attributes.
func portAnswer() []byte {
	return linktest.Message([]byte{nl.DEVLINK_CMD_PORT_NEW, nl.GENL_DEVLINK_VERSION, 0, 0},
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated("10000:e1:00.0")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_INDEX, nl.Uint32Attr(32768)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_TYPE, nl.Uint16Attr(2)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_NETDEV_IFINDEX, nl.Uint32Attr(11)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_NETDEV_NAME, nl.ZeroTerminated("eth5")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FLAVOUR, nl.Uint16Attr(nl.DEVLINK_PORT_FLAVOUR_PCI_VF)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER, nl.Uint32Attr(3)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER, nl.Uint16Attr(1)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER, nl.Uint16Attr(2)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER, nl.Uint32Attr(88)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_EXTERNAL, []byte{1}),
		nl.NewRtAttr(9999, []byte{1, 2, 3}),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FUNCTION|unix.NLA_F_NESTED,
			nl.NewRtAttr(nl.DEVLINK_PORT_FUNCTION_ATTR_HW_ADDR, []byte{2, 3, 0, 0, 0, 1}).Serialize()),
	)
}

func TestPortsOfOtherDevicesAreDropped(t *testing.T) {
	other := linktest.Message([]byte{nl.DEVLINK_CMD_PORT_NEW, nl.GENL_DEVLINK_VERSION, 0, 0},
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated("0000:e1:00.0")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FLAVOUR, nl.Uint16Attr(uint16(len(flavours))))) // of a newer kernel
	ports, err := Handle{"pci", "10000:e1:00.0"}.ParsePorts([][]byte{other, portAnswer(), other})
	difftest.Must(t, err)
	difftest.Equal(t, ports, []PortRecord{{
		Bus: "pci", Device: "10000:e1:00.0", Index: 32768, Netdev: "eth5", Flavour: "pcivf",
		PFNumber: new(uint16(1)), VFNumber: new(uint16(2)), SFNumber: new(uint32(88)), Controller: new(uint32(3)), External: new(true),
	}})
	if all, err := (Handle{}).ParsePorts([][]byte{other, portAnswer()}); err != nil || len(all) != 2 {
		t.Errorf("all devices: %d ports, %v", len(all), err)
	}
}

func TestPortAttributesOfWrongSizeAreErrors(t *testing.T) {
	for kind, sizes := range map[int][]int{
		nl.DEVLINK_ATTR_PORT_FLAVOUR: {1}, nl.DEVLINK_ATTR_PORT_EXTERNAL: {0, 4}, nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER: {1, 4},
		nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER: {4}, nl.DEVLINK_ATTR_PORT_PCI_SF_NUMBER: {2}, nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER: {2}, nl.DEVLINK_ATTR_PORT_INDEX: {0},
	} {
		for _, size := range sizes {
			port, err := parsePort(linktest.Message(make([]byte, nl.SizeofGenlmsg), nl.NewRtAttr(kind, make([]byte, size))))
			if !errors.Is(err, syscall.EBADMSG) {
				t.Errorf("attribute %d of %d bytes: %+v, %v", kind, size, port, err)
			}
		}
	}
	// An incomplete list would look like a missing port.
	if ports, err := (Handle{}).ParsePorts([][]byte{portAnswer(), portAnswer()[:50]}); ports != nil || !errors.Is(err, syscall.EBADMSG) {
		t.Errorf("%d ports, %v", len(ports), err)
	}
}

func TestIPoIBChildIsRecognizedByKindAndLink(t *testing.T) {
	for _, test := range []struct {
		kind          string
		linked, child bool
	}{
		{"ipoib", true, true},
		{"", true, true}, // before Linux 5.13
		{"ipoib", false, false}, {"veth", true, false}, {"", false, false},
	} {
		difftest.Same(t, test.kind, IPoIBChild(test.kind, test.linked), test.child)
	}
	const parent = "0000:01:00.0"
	for want, list := range map[bool][]Interface{
		true:  {{Parent: parent, Child: true}, {Parent: parent, PortName: "pf0vf1"}, {Kind: "tun"}},
		false: {{Parent: parent}, {Parent: parent, Kind: "ipoib"}, {Name: "before Linux 5.14"}},
	} {
		for _, i := range list {
			difftest.Same(t, fmt.Sprintf("%+v", i), i.Borrows(), want)
		}
	}
}

// It may have been removed after the upper interface was read.
func TestMissingLowerIsNone(t *testing.T) {
	c := rtnetlink.Dial()
	defer c.Close()
	upper := rtnetlink.Link{NSID: rtnetlink.Local, LowerNSID: rtnetlink.Local, Name: "net1", Kind: "macvlan", Lower: math.MaxInt32}
	got, err := describe(c, upper, maxDepth)
	difftest.Must(t, err)
	difftest.Equal(t, got, Interface{Name: "net1", Kind: "macvlan"})
}

func TestLowerThatCannotBeReadIsAnError(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		pod := linktest.NewNetns(t)
		linktest.AddVeth(t, "nic", "peer", pod)
		linktest.AddMacvlan(t, "nic", "net0", pod)
		c, err := dial(pod)
		difftest.Must(t, err)
		defer c.Close()
		l, err := c.Get(rtnetlink.Local, 0, rtnetlink.SkipStats, nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("net0")))
		difftest.Must(t, err)
		for depth := range 2 {
			i, err := describe(c, l, depth)
			difftest.Must(t, err)
			difftest.Same(t, fmt.Sprint("depth ", depth), i.Lower != nil, depth == 1)
		}
		linktest.EachOpenFailure(t, map[string]func() error{"describe": func() error { _, err := describe(c, l, maxDepth); return err }})
	})
}
