package rtnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attribute is part of a netlink message (struct nlattr in linux/netlink.h).
type Attribute struct {
	Kind  uint16 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	Value []byte // part of the message's memory
	Raw   []byte // the attribute with its header
}

// Attributes parses the attributes after the header of a message. Use header 0 for nested attributes. The error
// wraps EBADMSG. The library returns EINVAL in this case, which also means that the kernel does not support a
// request, so a broken answer would look like a missing feature.
func Attributes(message []byte, header int) (list []Attribute, err error) {
	if len(message) < header {
		return nil, fmt.Errorf("netlink message of %d bytes: %w", len(message), syscall.EBADMSG)
	}
	list = make([]Attribute, 0, len(message)/24) // of a usual size
	for rest := message[header:]; len(rest) > 0; {
		if len(rest) < unix.SizeofRtAttr {
			return nil, fmt.Errorf("%d bytes after the last netlink attribute: %w", len(rest), syscall.EBADMSG)
		}
		size, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])&nl.NLA_TYPE_MASK
		if size < unix.SizeofRtAttr || size > len(rest) {
			return nil, fmt.Errorf("netlink attribute %d has %d bytes, of %d: %w", kind, size, len(rest), syscall.EBADMSG)
		}
		list = append(list, Attribute{kind, rest[unix.SizeofRtAttr:size], rest[:size]})
		rest = rest[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(rest)):]
	}
	return list, nil
}

// Text returns the value of a string.
func (a Attribute) Text() string { return unix.ByteSliceToString(a.Value) }

// Int returns the value of a signed 32-bit attribute.
func (a Attribute) Int() (int, error) {
	n, err := Number[uint32](a)
	return int(int32(n)), err
}

// Padded returns the attribute with its header and padding, as in a message.
func (a Attribute) Padded() []byte {
	return append(slices.Clone(a.Raw), make([]byte, -len(a.Raw)&(unix.NLA_ALIGNTO-1))...)
}

// Number returns the value of an unsigned attribute, or an error if its size is different.
func Number[T uint8 | uint16 | uint32](a Attribute) (n T, err error) {
	if used, err := binary.Decode(a.Value, binary.NativeEndian, &n); err != nil || used != len(a.Value) {
		return 0, fmt.Errorf("netlink attribute %d has %d bytes of value: %w", a.Kind, len(a.Value), syscall.EBADMSG)
	}
	return n, nil
}

// Absent reports whether an error means that an object does not exist: no such file, device or generic netlink
// family, or a request that the kernel or driver does not support.
func Absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrNoInterface) || errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EPROTONOSUPPORT)
}

// maxTries is the number of requests before Retry returns EINTR.
const maxTries = 4

// Retry calls request again while it returns EINTR. The library returns EINTR if a signal interrupts the answer, or if
// the list changes during a dump (NLM_F_DUMP_INTR).
func Retry[T any](request func() (T, error)) (answer T, err error) {
	for range maxTries {
		if answer, err = request(); !errors.Is(err, syscall.EINTR) {
			return answer, err
		}
	}
	return answer, fmt.Errorf("interrupted %d times: %w", maxTries, err)
}
