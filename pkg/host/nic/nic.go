// Package nic is the table of the network cards that devinfo knows: their PCI IDs and drivers, what devinfo finds on them,
// and how that was tried. The table is in table.json. The one at the top of docs/devices.md is generated from it, and tests
// compare it with the code and with the captured hosts.
//
// The PCI IDs are those of the PCI ID database (pci-ids.ucw.cz), or of the driver where the database lacks one. The rest is
// what the drivers of Linux 6.12 to 6.18 do.
package nic

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed table.json
var table []byte

// Families returns the table, sorted as on the page. It panics if table.json is broken, which the tests rule out.
var Families = sync.OnceValue(func() (families []*Family) {
	d := json.NewDecoder(bytes.NewReader(table))
	d.DisallowUnknownFields()
	if err := d.Decode(&families); err != nil {
		panic(err)
	}
	return families
})

// A Family is the network cards of one kernel driver, a row of the table.
type Family struct {
	Driver   string // kernel driver of the whole function
	VFDriver string // kernel driver of a VF; "" = there are no VFs
	Vendor   string
	Products []Product
	Finds    []string // the constants below
	Limits   []string // what a pod cannot have, or the administrator must know
	Tried    []Trial  // none = devinfo follows the driver's source
}

// A Product is one or more cards with PCI IDs of their own.
type Product struct {
	Name string
	IDs  []string // "vendor:device" of functions; nil = it is not a PCI function
	VFs  []string // of VFs
}

// What devinfo finds for a device besides its PCI address.
const (
	VF        = "VF"        // the PF of a VF
	Switchdev = "switchdev" // the representor of a VF
	RDMA      = "RDMA"      // the RDMA devices
	VDPA      = "vDPA"      // the vDPA devices on a VF
	VFIO      = "vfio"      // a VF on vfio-pci, which has no interface
)

// A Trial is one way in which devinfo was tried on a family.
type Trial struct {
	How  How
	Host string // capture in testdata/hosts, without its extension
	Date string // of a report: "2026-11-28"
	With string // of a report: versions of the kernel and the firmware
}

// How is how something was tried, in words for a person. A later one proves more.
type How string

const (
	Written  How = "source, with files written by hand" // from the driver's source
	Captured How = "capture"                            // files of /sys and netlink answers of a kernel
	Emulated How = "QEMU"                               // the program test/hardware in QEMU
	Reported How = "report"                             // the program test/hardware on a card, by its owner
)

// HowTried returns how the family was tried, in words for a person.
func (f *Family) HowTried() string {
	var list []string
	for _, t := range f.Tried {
		text := string(t.How)
		if t.How == Reported {
			text = fmt.Sprintf("report of %s (%s)", t.Date, t.With)
		}
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	return cmp.Or(strings.Join(list, "; "), "source")
}

// Of returns the family and the name of the product of a PCI function; nil = the table does not have it. vendor and device
// are the IDs as in sysfs, with or without 0x. A card with an unknown ID belongs to the family of its driver.
func Of(vendor, device, driver string) (family *Family, product string) {
	id := strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(device, "0x")
	for _, f := range Families() {
		for _, p := range f.Products {
			if slices.Contains(p.IDs, id) || slices.Contains(p.VFs, id) {
				return f, p.Name
			}
		}
		if family == nil && driver != "" && (f.Driver == driver || f.VFDriver == driver) {
			family = f
		}
	}
	return family, ""
}
