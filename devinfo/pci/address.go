// Package pci parses, prints and compares addresses of PCI functions, such as "0000:3b:00.2".
package pci

import (
	"fmt"
	"strconv"
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
	domain, err1 := strconv.ParseUint(s[:n-8], 16, 32)
	bus, err2 := strconv.ParseUint(s[n-7:n-5], 16, 8)
	device, err3 := strconv.ParseUint(s[n-4:n-2], 16, 5)
	function, err4 := strconv.ParseUint(s[n-1:], 16, 3)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return Address{}, syntax(s)
	}
	return Address{uint32(domain), uint8(bus), uint8(device), uint8(function)}, nil
}

func syntax(s string) error {
	hint := ""
	if len(s) == len("BB:DD.f") && strings.Count(s, ":") == 1 {
		hint = fmt.Sprintf("; did you mean %q?", "0000:"+s)
	}
	return fmt.Errorf("%q is not a PCI address of the form dddd:BB:DD.f%s", s, hint)
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
