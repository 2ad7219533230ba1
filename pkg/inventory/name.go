package inventory

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"devinfo-cni.io/devinfo/pci"
)

const functionPrefix = "pci-"

// functionName names the device of a PCI function: "pci-0000-8a-00-2".
func functionName(a pci.Address) string {
	return functionPrefix + strings.NewReplacer(":", "-", ".", "-").Replace(a.String())
}

// spell makes a DNS label of a kernel's name, behind the prefix "net", "aux" or "vdpa".
// Different names have different labels. A name that is one by itself stays legible:
// "net-br-ex"; in any other, behind an "x", each byte that a label cannot hold is two
// hexadecimal digits behind a "-", and "-" is doubled: "netx-bond0-2e100" is bond0.100.
func spell(prefix, name string) string {
	if plain := prefix + "-" + name; len(validation.IsDNS1123Label(name)) == 0 && len(plain) <= validation.DNS1123LabelMaxLength {
		return plain
	}
	var b strings.Builder
	b.WriteString(prefix + "x-")
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z' || c >= '0' && c <= '9':
			b.WriteByte(c)
		case c == '-' && i < len(name)-1:
			b.WriteString("--")
		default:
			fmt.Fprintf(&b, "-%02x", c)
		}
	}
	return shorten(b.String(), name)
}

// shorten replaces the end of a label that is too long, which no interface's is, by 80
// bits of the name's hash.
func shorten(label, name string) string {
	const digits = 20
	if len(label) <= validation.DNS1123LabelMaxLength {
		return label
	}
	sum := sha256.Sum256([]byte(name))
	kept := strings.TrimRight(label[:validation.DNS1123LabelMaxLength-digits-1], "-")
	return fmt.Sprintf("%s-%x", kept, sum[:digits/2])
}
