package link

import (
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// encode writes attributes as the kernel does.
func encode(list []attribute) (message []byte) {
	for _, a := range list {
		message = binary.NativeEndian.AppendUint16(message, uint16(unix.SizeofRtAttr+len(a.value)))
		message = binary.NativeEndian.AppendUint16(message, a.kind)
		message = append(message, a.value...)
		message = append(message, make([]byte, -len(message)&(unix.NLA_ALIGNTO-1))...)
	}
	return message
}

// What is read encodes to the same; each value lies in the message, and they do not
// overlap; errors are broken answers. The library's reader agrees where it does not
// panic.
func FuzzAttributes(f *testing.F) {
	f.Add(portAnswer()[nl.SizeofGenlmsg:])
	f.Add(linkAnswer()[unix.SizeofIfInfomsg:])
	f.Add([]byte("\x07\x00\x07\x00eth"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := attributes(data, 0)
		if err != nil {
			broken(t, err)
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

// library reads attributes by vishvananda/netlink; not ok where that fails or panics.
func library(data []byte) (list []syscall.NetlinkRouteAttr, ok bool) {
	defer func() { ok = recover() == nil && ok }()
	list, err := nl.ParseRouteAttr(data)
	return list, err == nil
}

// A port or an interface says no more than its message: each text is in it.
func FuzzAnswers(f *testing.F) {
	f.Add(portAnswer())
	f.Add(linkAnswer())
	f.Fuzz(func(t *testing.T, data []byte) {
		port, err := parsePort(data)
		if err != nil {
			broken(t, err)
		} else {
			inside(t, data, port.BusName, port.DeviceName, port.NetdeviceName)
		}
		interf, err := parse(data, local)
		if err != nil && !errors.Is(err, syscall.EOPNOTSUPP) {
			broken(t, err)
		}
		if err == nil {
			inside(t, data, interf.Name, interf.Bus, interf.Parent, interf.PortName, interf.Kind, string(interf.MAC))
			record(interf, data)
		}
	})
}

func inside(t *testing.T, data []byte, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(string(data), text) {
			t.Fatalf("%q is not in the message", text)
		}
	}
}
