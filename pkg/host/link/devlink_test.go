package link

import (
	"encoding/binary"
	"errors"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/test/difftest"
)

func message(header []byte, attrs ...*nl.RtAttr) []byte {
	for _, a := range attrs {
		header = append(header, a.Serialize()...)
	}
	return header
}

// Kernels differ in how they report the network namespace of the lower interface.
func TestNetnsOfLowerInterfaceIsParsed(t *testing.T) {
	attr := func(kind int, n int) *nl.RtAttr { return nl.NewRtAttr(kind, nl.Uint32Attr(uint32(int32(n)))) }
	header := nl.NewIfInfomsg(unix.AF_UNSPEC)
	header.Index = 3
	for _, test := range []struct {
		name            string
		netnsid         int
		attrs           []*nl.RtAttr
		link, linkNetns int
	}{
		{"same namespace", local, []*nl.RtAttr{attr(unix.IFLA_LINK, 2)}, 2, local},
		{"another", local, []*nl.RtAttr{attr(unix.IFLA_LINK_NETNSID, 0), attr(unix.IFLA_LINK, 2)}, 2, 0},
		{"another, same index, before Linux 5.11", local, []*nl.RtAttr{attr(unix.IFLA_LINK_NETNSID, 0)}, 3, 0},
		{"another without a number", local, []*nl.RtAttr{attr(unix.IFLA_LINK, 2), attr(unix.IFLA_LINK_NETNSID, -1)}, 2, -1},
		{"both away", 5, []*nl.RtAttr{attr(unix.IFLA_TARGET_NETNSID, 5), attr(unix.IFLA_LINK, 2)}, 2, 5},
		{"none", local, nil, 0, local},
	} {
		f, err := parse(message(header.Serialize(), test.attrs...), test.netnsid)
		if err != nil || f.link != test.link || f.linkNetns != test.linkNetns {
			t.Errorf("%s: %d in %d, %v", test.name, f.link, f.linkNetns, err)
		}
	}
	if _, err := parse(message(header.Serialize()), 5); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("an answer from the wrong namespace: %v", err)
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
		f, err := parse(message(nl.NewIfInfomsg(unix.AF_UNSPEC).Serialize(), test.attrs...), local)
		if err != nil || f.Child != test.child {
			t.Errorf("%+v: %v, %v", test, f.Child, err)
		}
	}
}

func TestAbsentIsTrueForMissingObjects(t *testing.T) {
	for err, want := range map[error]bool{
		nil:                     false,
		syscall.ENOENT:          true,
		syscall.ENODEV:          true,
		syscall.EOPNOTSUPP:      true,
		syscall.EPROTONOSUPPORT: true,
		syscall.EIO:             false,
		syscall.EPERM:           false,
	} {
		if absent(err) != want {
			t.Errorf("absent(%v) = %v", err, !want)
		}
	}
}

// encode encodes attributes as the kernel does.
func encode(list []attribute) (message []byte) {
	for _, a := range list {
		message = binary.NativeEndian.AppendUint16(message, uint16(unix.SizeofRtAttr+len(a.value)))
		message = binary.NativeEndian.AppendUint16(message, a.kind)
		message = append(message, a.value...)
		message = append(message, make([]byte, -len(message)&(unix.NLA_ALIGNTO-1))...)
	}
	return message
}

// The attributes fit into the message, and are the same after they are encoded and parsed again. The library parses the
// same attributes, unless it returns an error or panics.
func FuzzAttributes(f *testing.F) {
	f.Add(portAnswer()[nl.SizeofGenlmsg:])
	f.Add(linkAnswer()[unix.SizeofIfInfomsg:])
	f.Add([]byte("\x07\x00\x07\x00eth"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := attributes(data, 0)
		if err != nil {
			wantInvalid(t, err)
		}
		used := 0
		for _, a := range list {
			used += unix.SizeofRtAttr + len(a.value)
		}
		if used > len(data) {
			t.Fatalf("%d bytes of attributes in %d", used, len(data))
		}
		again, againErr := attributes(encode(list), 0)
		if againErr != nil || len(again) != len(list) {
			t.Fatalf("%v is %v, %v after encoding", list, again, againErr)
		}
		for n := range list {
			if list[n].kind != again[n].kind || string(list[n].value) != string(again[n].value) {
				t.Fatalf("%v is %v after encoding", list[n], again[n])
			}
		}
		if theirs, ok := library(data); ok && err == nil {
			for n, a := range theirs {
				if list[n].kind != a.Attr.Type&nl.NLA_TYPE_MASK || string(list[n].value) != string(a.Value) {
					t.Fatalf("%v is %v to the library", list[n], a)
				}
			}
		}
	})
}

// library reads attributes with vishvananda/netlink. ok is false if it fails or panics.
func library(data []byte) (list []syscall.NetlinkRouteAttr, ok bool) {
	defer func() { ok = recover() == nil && ok }()
	list, err := nl.ParseRouteAttr(data)
	return list, err == nil
}

// Each parsed text of a port or interface is part of the message.
func FuzzAnswers(f *testing.F) {
	f.Add(portAnswer())
	f.Add(linkAnswer())
	f.Fuzz(func(t *testing.T, data []byte) {
		port, err := parsePort(data)
		if err != nil {
			wantInvalid(t, err)
		} else {
			difftest.Contains(t, string(data), port.Bus, port.Device, port.Netdev)
		}
		interf, err := parse(data, local)
		if err != nil && !errors.Is(err, syscall.EOPNOTSUPP) {
			wantInvalid(t, err)
		}
		if err == nil {
			difftest.Contains(t, string(data), interf.Name, interf.Bus, interf.Parent, interf.PortName, interf.Kind, string(interf.MAC))
		}
	})
}
