package cdispec

import (
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// FileName is the name, in a CDI directory, of the spec file of one device that lives as
// long as a container: the CDI library's name for transient specs,
// <vendor>-<class>_<name>.json. It is not checked for length: writing the file fails if it
// is too long.
func FileName(kind, name string) string {
	return strings.ReplaceAll(kind, "/", "-") + "_" + name + ".json"
}

// Qualified is the name by which a container asks for the device.
func Qualified(kind, name string) string { return kind + "=" + name }

// DeviceName names the device of an attachment, <containerID>:<ifName>. A container
// ID holds no colon; what CDI does not allow in the interface name, and a mark at its
// end, is written as a colon and two hexadecimal digits. So two attachments never
// have one name, and a name is valid wherever the container ID is one of CNI's.
func DeviceName(containerID, ifName string) string {
	name := []byte(containerID + ":")
	for n, c := range []byte(ifName) {
		last := n == len(ifName)-1
		if parser.IsAlphaNumeric(rune(c)) || !last && strings.IndexByte("_-.", c) >= 0 {
			name = append(name, c)
		} else {
			name = fmt.Appendf(name, ":%02x", c)
		}
	}
	return string(name)
}

// CheckKind returns an error unless a container runtime accepts the kind: CDI SPEC.md,
// "Kind". The library checks the letters, this also the lengths.
func CheckKind(kind string) error {
	const longestVendor, longestClass = 253, 63
	vendor, class, _ := strings.Cut(kind, "/")
	if parser.ValidateVendorName(vendor) != nil || parser.ValidateClassName(class) != nil ||
		len(vendor) > longestVendor || len(class) > longestClass {
		return fmt.Errorf("CDI kind %q: must be vendor/class, such as %s: letters, digits, '_', '-' and '.', "+
			"each beginning with a letter and ending with a letter or digit, of at most %d and %d bytes", kind, DefaultKind, longestVendor, longestClass)
	}
	return nil
}

// CheckName returns an error unless a CDI device can have the name.
func CheckName(name string) error {
	if parser.ValidateDeviceName(name) != nil {
		return fmt.Errorf("CDI device name %q: must be letters, digits, '_', '-', '.' and ':', "+
			"beginning and ending with a letter or digit", name)
	}
	return nil
}
