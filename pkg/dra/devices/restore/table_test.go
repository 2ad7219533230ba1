package restore

import (
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/test/difftest"
)

// The page for owners of NICs names the drivers that are bound again by default. Their VFs have no other devices.
func TestPageOfNICsNamesDriversThatAreReset(t *testing.T) {
	want := "`reset: auto`, only " + strings.Join(resettable[:len(resettable)-1], ", ") + " and " + resettable[len(resettable)-1]
	if page := strings.Join(strings.Fields(difftest.Read(t, "../../../../docs/devices.md")), " "); !strings.Contains(page, want) {
		t.Errorf("docs/devices.md does not say %q", want)
	}
	for _, f := range nic.Families {
		if slices.Contains(resettable, f.VFDriver) && slices.Contains(f.Finds, nic.RDMA) {
			t.Errorf("%s: its VFs are reset, and have RDMA devices", f.VFDriver)
		}
	}
}
