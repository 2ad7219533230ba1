package inventory

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"devinfo-cni.io/test/difftest"
)

func TestNamesAreDNSLabels(t *testing.T) {
	longest := strings.Repeat("a", 59) // 63 with the prefix
	for name, want := range map[string]string{
		"eth0": "net-eth0", "br-ex": "net-br-ex", "bond0.100": "netx-bond0-2e100", "br_ex": "netx-br-5fex", "Br": "netx--42r",
		"br-": "netx-br-2d", "-": "netx--2d", "br-A": "netx-br---41", longest: "net-" + longest,
		longest + "a": "netx-" + longest[:37] + "-11ee391211c6256460b6",
	} {
		difftest.Same(t, name, spell("net", name), want)
	}
}

func TestDifferentNamesHaveDifferentLabels(t *testing.T) {
	long := strings.Repeat("a", 70)
	names := []string{"", long, long + "b", strings.Repeat("a", 58), strings.Repeat("a", 59), strings.Repeat("a", 60), strings.Repeat(".", 40)}
	for _, a := range []string{"", "a", "-", ".", "_", "A", "2", "x", "é", "-2e", "x-"} { // all short combinations of special parts
		for _, b := range []string{"", "b", "-", ".", "2", "d", "-2d"} {
			for _, c := range []string{"", "c", "-", "_", "e", "0"} {
				names = append(names, a+b+c)
			}
		}
	}
	by := map[string]string{}
	for _, name := range names {
		for _, prefix := range []string{"net", "aux", "vdpa"} {
			label := spell(prefix, name)
			if why := validation.IsDNS1123Label(label); len(why) > 0 && name != "" {
				t.Errorf("%q is spelt %q: %v", name, label, why)
			}
			if other, taken := by[label]; taken && other != prefix+" "+name {
				t.Errorf("%q and %q are both spelt %q", other, name, label)
			}
			by[label] = prefix + " " + name
		}
	}
}
