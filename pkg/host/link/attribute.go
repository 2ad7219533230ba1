package link

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// An attribute is part of a netlink message (struct nlattr in linux/netlink.h).
type attribute struct {
	kind  uint16 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
	value []byte // part of the message's memory
}

// attributes parses the attributes after the header of a message. Use header 0 for nested attributes. The error
// wraps EBADMSG. The library returns EINVAL in this case, which also means that the kernel does not support a
// request, so a broken answer would look like a missing feature.
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

// text returns the value of a string attribute, without its final zero byte.
func (a attribute) text() string { return unix.ByteSliceToString(a.value) }

// integer returns the value of a signed 32-bit attribute.
func (a attribute) integer() (int, error) {
	n, err := number[uint32](a)
	return int(int32(n)), err
}

// number returns the value of an unsigned attribute, or an error if its size is different. It does not use
// binary.Decode, which adds 20 KB of reflection to the executable.
func number[T uint8 | uint16 | uint32](a attribute) (n T, err error) {
	if 8*len(a.value) != bits.Len32(uint32(^n)) {
		return 0, fmt.Errorf("netlink attribute %d has %d bytes of value: %w", a.kind, len(a.value), syscall.EBADMSG)
	}
	switch len(a.value) {
	case 1:
		n = T(a.value[0])
	case 2:
		n = T(binary.NativeEndian.Uint16(a.value))
	default:
		n = T(binary.NativeEndian.Uint32(a.value))
	}
	return n, nil
}

// maxTries is the number of requests before retryInterrupted returns EINTR.
const maxTries = 4

// retryInterrupted calls request again while it returns EINTR. The library returns EINTR if a signal interrupts the
// answer, or if the list changes during a dump (NLM_F_DUMP_INTR).
func retryInterrupted[T any](request func() (T, error)) (answer T, err error) {
	for range maxTries {
		if answer, err = request(); !errors.Is(err, syscall.EINTR) {
			return answer, err
		}
	}
	return answer, fmt.Errorf("interrupted %d times: %w", maxTries, err)
}
