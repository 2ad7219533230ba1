package capture_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/hosttxt"
)

func TestSecretsAreTheMachinesNamesAndSerialNumbers(t *testing.T) {
	sysfs := t.TempDir()
	dir := filepath.Join(sysfs, "class/dmi/id")
	must(t, os.MkdirAll(dir, 0o755))
	host, err := os.Hostname()
	must(t, err)
	want := []string{host}
	for _, file := range []string{"product_serial", "product_uuid", "board_serial", "chassis_serial"} {
		want = append(want, "SN "+file)
		must(t, os.WriteFile(filepath.Join(dir, file), []byte("SN "+file+"\n"), 0o600))
	}
	got := capture.Secrets(sysfs)
	for _, secret := range want {
		if !slices.Contains(got, secret) {
			t.Errorf("%q is not among %q", secret, got)
		}
	}
}

func TestACapturedHostIsDescribedByItsFirstLine(t *testing.T) {
	for comment, want := range map[string][]string{
		"rack7: ConnectX-6, 8 VFs, Linux 6.12.1\nmissing: a\n": {"rack7", "ConnectX-6, 8 VFs", "6.12.1"},
		"rack7: a NIC\n": {"rack7", "a NIC", ""},
		"rack7":          {"rack7", "", ""},
		"":               {"", "", ""},
	} {
		c := capture.Captured{Host: &hosttxt.Host{Comment: comment}}
		name, note, release := c.Described()
		if diff := cmp.Diff(want, []string{name, note, release}); diff != "" || c.Secrets()[0] != want[0] {
			t.Errorf("%q: %q\n%s", comment, c.Secrets(), diff)
		}
	}
	if got := capture.Name("Rack7.Example_net"); got != "rack7-example-net" {
		t.Errorf("got %s", got)
	}
}
