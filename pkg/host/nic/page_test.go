package nic_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/test/goldentest"

	"devinfo-cni.io/test/difftest"
)

const (
	page  = "../../../docs/devices.md"
	begin = "<!-- This table is pkg/host/nic/table.go: change it there, then go test ./pkg/host/nic -update -->\n"
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
	out.WriteString("| NIC | PCI IDs | driver; of VFs | found | limits | tried |\n|---|---|---|---|---|---|\n")
	for _, f := range nic.Families() {
		var names, ids []string
		for _, p := range f.Products {
			if len(p.IDs) > 0 || len(p.VFs) == 0 || len(f.Products) == 1 {
				names = append(names, p.Name)
			}
			ids = slices.Concat(ids, p.IDs, p.VFs)
		}
		driver := f.Driver
		if f.VFDriver != "" && f.VFDriver != f.Driver {
			driver += "; " + f.VFDriver
		}
		limits := strings.Join(f.Limits, "; ")
		if limits == "" {
			limits = "-"
		}
		fmt.Fprintf(&out, "| %s %s | %s | %s | %s | %s | %s |\n", f.Vendor, strings.Join(names, ", "), ranges(ids), driver, f.Finds, limits, f.HowTried())
	}
	return out.String()
}

// ranges writes IDs by vendor, with several in a row as one: "8086: 1591-1593, 1599".
func ranges(ids []string) string {
	if len(ids) == 0 {
		return "-"
	}
	slices.Sort(ids)
	var text, vendor string
	for n := 0; n < len(ids); n++ {
		first, last := n, n
		for last+1 < len(ids) && number(ids[last+1]) == number(ids[last])+1 {
			last++
		}
		of, id, _ := strings.Cut(ids[first], ":")
		switch {
		case of == vendor:
			text += ", " + id
		case vendor != "":
			text += "; " + of + ": " + id
		default:
			text += of + ": " + id
		}
		if vendor = of; last > first {
			text += "-" + ids[last][len(of)+1:]
		}
		n = last
	}
	return text
}

func number(id string) int64 {
	n, _ := strconv.ParseInt(strings.Replace(id, ":", "", 1), 16, 64)
	return n
}
