package nic_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

const (
	page  = "../../../docs/devices.md"
	begin = "<!-- This table is pkg/host/nic/table.json: change it there, then go test ./pkg/host/nic -update -->\n"
	end   = "<!-- end of the table -->\n"
)

func TestPageHasTable(t *testing.T) {
	text := difftest.Read(t, page)
	before, rest, ok1 := strings.Cut(text, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no %q and %q", page, begin, end)
	}
	goldentest.File(t, page, before+begin+table()+end+after)
}

func table() string {
	var out strings.Builder
	out.WriteString("| NIC | driver; of VFs | found | limits | tried |\n|---|---|---|---|---|\n")
	for _, f := range nic.Families() {
		var names []string
		for _, p := range f.Products {
			if len(p.IDs) > 0 || len(p.VFs) == 0 || len(f.Products) == 1 {
				names = append(names, p.Name)
			}
		}
		driver := f.Driver
		if f.VFDriver != "" && f.VFDriver != f.Driver {
			driver += "; " + f.VFDriver
		}
		limits, finds := cmp.Or(strings.Join(f.Limits, "; "), "-"), cmp.Or(strings.Join(f.Finds, ", "), "-")
		fmt.Fprintf(&out, "| %s %s | %s | %s | %s | %s |\n", f.Vendor, strings.Join(names, ", "), driver, finds, limits, f.HowTried())
	}
	return out.String()
}
