package link

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/rtnetlink"
	"devinfo-cni.io/test/difftest"
)

func message(header []byte, attrs ...*nl.RtAttr) []byte {
	for _, a := range attrs {
		header = append(header, a.Serialize()...)
	}
	return header
}

// portAnswer is the answer for a port of 10000:e1:00.0, a PF in a PCI domain with five digits. It has all attributes
// that parsePort reads, and further attributes.
func portAnswer() []byte {
	return message([]byte{nl.DEVLINK_CMD_PORT_NEW, nl.GENL_DEVLINK_VERSION, 0, 0},
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
	other := message([]byte{nl.DEVLINK_CMD_PORT_NEW, nl.GENL_DEVLINK_VERSION, 0, 0},
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated("0000:e1:00.0")))
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

// wantInvalid fails the test unless err marks an invalid answer, which is different from an absent object.
func wantInvalid(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.EBADMSG) || rtnetlink.Absent(err) {
		t.Errorf("%v: absent is %v", err, rtnetlink.Absent(err))
	}
}

func TestInvalidPortAttributesAreErrors(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the messages are little-endian")
	}
	for name, test := range map[string]struct {
		rest string // after the header of a port
		err  bool
		name string
	}{
		"no zero byte":         {rest: "\x08\x00\x07\x00eth4", name: "eth4"},
		"no room for padding":  {rest: "\x07\x00\x07\x00eth", name: "eth"},
		"two names":            {rest: "\x06\x00\x07\x00a\x00  \x06\x00\x07\x00b\x00  ", name: "b"},
		"zero bytes":           {rest: "\x08\x00\x07\x00\x00\x00\x00\x00"},
		"empty":                {rest: "\x04\x00\x07\x00"},
		"unknown":              {rest: "\x05\x00\xff\x3f\x01\x00\x00\x00"},
		"nested":               {rest: "\x06\x00\x07\x80a\x00  ", name: "a"},
		"length of zero":       {rest: "\x00\x00\x07\x00eth4", err: true},
		"length of three":      {rest: "\x03\x00\x07\x00eth4", err: true},
		"longer than the rest": {rest: "\x09\x00\x07\x00eth4", err: true},
		"all ones":             {rest: "\xff\xff\xff\xff\xff\xff", err: true},
		"half a header":        {rest: "\x04\x00\x07\x00\x04\x00", err: true},
		"flavour of a byte":    {rest: "\x05\x00\x4d\x00\x04\x00\x00\x00", err: true},
		"external of four":     {rest: "\x08\x00\x95\x00\x01\x00\x00\x00", err: true},
		"external of none":     {rest: "\x04\x00\x95\x00", err: true},
		"VF of a byte":         {rest: "\x05\x00\x80\x00\x01\x00\x00\x00", err: true},
		"VF of four":           {rest: "\x08\x00\x80\x00\x01\x00\x00\x00", err: true},
		"SF of two":            {rest: "\x06\x00\xa4\x00\x01\x00\x00\x00", err: true},
		"index of none":        {rest: "\x04\x00\x03\x00", err: true},
	} {
		port, err := parsePort([]byte("\x07\x01\x00\x00" + test.rest))
		if (err != nil) != test.err || err == nil && port.Netdev != test.name {
			t.Errorf("%s: %+v, %v", name, port, err)
		}
		if err != nil {
			wantInvalid(t, err)
		}
	}
}

// If one answer of several is invalid, the list is an error, because an incomplete list would look like a missing port.
func TestTruncatedPortIsAnError(t *testing.T) {
	for n := range portAnswer() {
		if port, err := parsePort(portAnswer()[:n:n]); err != nil {
			wantInvalid(t, err)
		} else if !strings.HasPrefix("10000:e1:00.0", port.Device) {
			t.Errorf("%d bytes have %+v", n, port)
		}
	}
	if ports, err := (Handle{}).ParsePorts([][]byte{portAnswer(), portAnswer()[:50]}); ports != nil || err == nil {
		t.Errorf("%d ports, %v", len(ports), err)
	}
}

func TestIPoIBChildIsRecognizedByKindAndLink(t *testing.T) {
	link, kind := nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(2)), func(name string) *nl.RtAttr {
		info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
		info.AddRtAttr(nl.IFLA_INFO_KIND, nl.ZeroTerminated(name))
		return info
	}
	for _, test := range []struct {
		attrs []*nl.RtAttr
		child bool
	}{
		{[]*nl.RtAttr{link, kind("ipoib")}, true},
		{[]*nl.RtAttr{link}, true}, // before Linux 5.13
		{[]*nl.RtAttr{kind("ipoib")}, false},
		{[]*nl.RtAttr{link, kind("veth")}, false},
		{nil, false},
	} {
		l, err := rtnetlink.ParseLink(message(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(), test.attrs...), rtnetlink.Local)
		got := IPoIBChild(l.Kind, l.Lower != 0)
		if err != nil || got != test.child {
			t.Errorf("%+v: %v, %v", test, got, err)
		}
	}
}

// Each parsed text of a port is part of the message.
func FuzzPort(f *testing.F) {
	f.Add(portAnswer())
	f.Fuzz(func(t *testing.T, data []byte) {
		port, err := parsePort(data)
		if err != nil {
			wantInvalid(t, err)
		} else {
			difftest.Contains(t, string(data), port.Bus, port.Device, port.Netdev)
		}
	})
}
