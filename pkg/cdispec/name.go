package cdispec

import (
	"fmt"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// FileName returns the file name of a spec in a CDI directory. It is the CDI library's name for specs that
// live as long as a container, <vendor>-<class>_<name>.json. FileName does not check its length, because
// writing a file with too long a name fails.
func FileName(kind, name string) string {
	return strings.ReplaceAll(kind, "/", "-") + "_" + name + ".json"
}

// Qualified returns the name that a container uses to request the device.
func Qualified(kind, name string) string { return kind + "=" + name }

// DeviceName returns the device name of an attachment, <containerID>:<ifName>. In the interface name it
// replaces a byte that CDI does not allow by a colon and two hexadecimal digits. A container ID contains no
// colon, so the names of two attachments always differ. The name is valid in CDI if the container ID is valid
// in CNI.
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

// CheckKind returns an error unless a container runtime accepts the kind (CDI SPEC.md, "Kind"). The library
// checks the characters; CheckKind also checks the lengths.
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

// CheckName returns an error unless CDI allows the name for a device.
func CheckName(name string) error {
	if parser.ValidateDeviceName(name) != nil {
		return fmt.Errorf("CDI device name %q: must be letters, digits, '_', '-', '.' and ':', "+
			"beginning and ending with a letter or digit", name)
	}
	return nil
}
