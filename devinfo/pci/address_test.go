package pci_test

import (
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/pci"
)

func TestStringUsesKernelSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"0000:01:00.2":     "0000:01:00.2",
		"0000:3B:1f.7":     "0000:3b:1f.7",
		"10000:e1:00.0":    "10000:e1:00.0",
		"0000abcd:00:00.0": "abcd:00:00.0",
	} {
		if a, err := pci.Parse(in); err != nil || a.String() != want {
			t.Errorf("Parse(%q) = %s, %v, want %s", in, a, err, want)
		}
	}
}

func TestParseRejectsInvalidAddress(t *testing.T) {
	for _, in := range []string{
		"", "eth0", "01:00.2", "0000:02:01:6", "0000:01:20.0", "0000:01:00.8", "0000:01:00.f",
		"0000:01:00.", " 0000:01:00.2", "0000:01:00.2\n", "000:01:00.2", "123456789:01:00.0",
		"0000-01-00.2", "0000-01:00.2", "0000:01-00.2", "+000:01:00.2", "0000:0g:00.2", "0000:01:0_.2", "vdpa:0000:65:00.3",
	} {
		if a, err := pci.Parse(in); err == nil {
			t.Errorf("Parse(%q) = %s, want an error", in, a)
		}
	}
}

func TestErrorForShortFormSuggestsLongForm(t *testing.T) {
	_, err := pci.Parse("3b:00.1")
	want := `"3b:00.1" is not a PCI address of the form dddd:BB:DD.f; did you mean "0000:3b:00.1"?`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := pci.Parse("eth0:1"); strings.Contains(err.Error(), "did you mean") {
		t.Errorf("got %v", err)
	}
}

func TestRoutingID(t *testing.T) {
	if got := (pci.Address{Bus: 0x01, Device: 0x10, Function: 2}).RoutingID(); got != 0x182 {
		t.Errorf("got %#x, want 0x182", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"0000:01:00.2", "0000:3B:1f.7", "10000:e1:00.0", "0000abcd:00:00.0", "3b:00.1", "0000:01:00.", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := pci.Parse(s)
		if err != nil {
			return
		}
		again, err := pci.Parse(a.String())
		if err != nil || again != a || len(s) == len(a.String()) && !strings.EqualFold(s, a.String()) {
			t.Errorf("%q is %s, and that %s (%v)", s, a, again, err)
		}
	})
}
