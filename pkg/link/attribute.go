package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// An attribute is part of a netlink message (struct nlattr in linux/netlink.h).
type attribute struct {
	kind  uint16 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	value []byte // in the message's own memory
}

// attributes reads those that follow the header of a message; an attribute that
// nests others has none. The error is EBADMSG, and never EINVAL, which the library
// gives for the same and which means that the kernel does not know a question: a
// broken answer is not "no".
func attributes(message []byte, header int) (list []attribute, err error) {
	if len(message) < header {
		return nil, fmt.Errorf("netlink message of %d bytes: %w", len(message), syscall.EBADMSG)
	}
	for rest := message[header:]; len(rest) > 0; {
		if len(rest) < unix.SizeofRtAttr {
			return nil, fmt.Errorf("%d bytes after the last netlink attribute: %w", len(rest), syscall.EBADMSG)
		}
		size, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])&nl.NLA_TYPE_MASK
		if size < unix.SizeofRtAttr || size > len(rest) {
			return nil, fmt.Errorf("netlink attribute %d has %d bytes, of %d: %w", kind, size, len(rest), syscall.EBADMSG)
		}
		list = append(list, attribute{kind, rest[unix.SizeofRtAttr:size]})
		rest = rest[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(rest)):]
	}
	return list, nil
}

// text is that of a string, which the kernel ends with a zero byte.
func (a attribute) text() string { return unix.ByteSliceToString(a.value) }

// integer is a signed number of 32 bits.
func (a attribute) integer() (int, error) {
	var n int32
	err := number(&n, a)
	return int(n), err
}

// number reads one of that width, and refuses one of another.
func number[T uint8 | uint16 | uint32 | int32](to *T, a attribute) error {
	if len(a.value) != binary.Size(*to) {
		return fmt.Errorf("netlink attribute %d has %d bytes of value: %w", a.kind, len(a.value), syscall.EBADMSG)
	}
	_, err := binary.Decode(a.value, binary.NativeEndian, to)
	return err
}

func optional[T uint16 | uint32](to **T, a attribute) error {
	*to = new(T)
	return number(*to, a)
}

// tries bounds how often patiently asks.
const tries = 4

// patiently asks again if a signal, or a change of what a dump lists, interrupts the
// answer; for the latter the kernel sets NLM_F_DUMP_INTR, and the library returns EINTR,
// too.
func patiently[T any](ask func() (T, error)) (answer T, err error) {
	for range tries {
		if answer, err = ask(); !errors.Is(err, syscall.EINTR) {
			return answer, err
		}
	}
	return answer, fmt.Errorf("interrupted %d times: %w", tries, err)
}
