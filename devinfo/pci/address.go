// Package pci parses, prints and compares addresses of PCI functions, such as "0000:3b:00.2". Package sysfs
// reads the facts about a function.
package pci

import (
	"fmt"
	"strings"
)

// Address is the address of one PCI function. The zero value is the valid address 0000:00:00.0, so use a
// pointer or a second result for an optional address.
type Address struct {
	Domain   uint32 // 16 bits on PCI; wider behind Intel VMD (10000 and up)
	Bus      uint8
	Device   uint8 // 0 to 31
	Function uint8 // 0 to 7
}

// Parse reads "dddd:BB:DD.f": four to eight hexadecimal digits of domain, two of bus, two of device (at most
// 1f) and one octal digit of function. Upper and lower case are accepted, the short form "BB:DD.f" is not.
func Parse(s string) (Address, error) {
	n := len(s)
	if n < len("dddd:BB:DD.f") || n > len("dddddddd:BB:DD.f") || s[n-2] != '.' || s[n-5] != ':' || s[n-8] != ':' {
		return Address{}, syntax(s)
	}
	domain, ok1 := hex(s[:n-8])
	bus, ok2 := hex(s[n-7 : n-5])
	device, ok3 := hex(s[n-4 : n-2])
	function := s[n-1] - '0'
	if !ok1 || !ok2 || !ok3 || device > 0x1f || function > 7 {
		return Address{}, syntax(s)
	}
	return Address{domain, uint8(bus), uint8(device), function}, nil
}

func syntax(s string) error {
	hint := ""
	if len(s) == len("BB:DD.f") && strings.Count(s, ":") == 1 {
		hint = fmt.Sprintf("; did you mean %q?", "0000:"+s)
	}
	return fmt.Errorf("%q is not a PCI address of the form dddd:BB:DD.f%s", s, hint)
}

// hex is like strconv.ParseUint in base 16, but accepts no sign or underscore and does not allocate.
func hex(s string) (uint32, bool) {
	var v uint32
	for i := range len(s) {
		c := s[i] | 0x20
		switch {
		case s[i] >= '0' && s[i] <= '9':
			v = v<<4 | uint32(s[i]-'0')
		case c >= 'a' && c <= 'f':
			v = v<<4 | uint32(c-'a'+10)
		default:
			return 0, false
		}
	}
	return v, true
}

// String returns the kernel's spelling, as in the names below /sys/bus/pci/devices: lower case, at least four
// digits of domain.
func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Device, a.Function)
}

// RoutingID returns the 16-bit requester ID (bus, device, function), from which SR-IOV computes the addresses
// of VFs (PCIe SR-IOV 2.1.2).
func (a Address) RoutingID() int {
	return int(a.Bus)<<8 | int(a.Device)<<3 | int(a.Function)
}
