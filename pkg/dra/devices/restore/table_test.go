package restore

import (
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/test/difftest"
)

// The page for owners of NICs names the drivers that are not bound again by default. Those that are have no other devices.
func TestTableOfNICsTellsWhatIsNotReset(t *testing.T) {
	page := difftest.Read(t, "../../../../docs/devices.md")
	if want := "It does for " + strings.Join(resettable[:len(resettable)-1], ", ") + " and " + resettable[len(resettable)-1] + ";"; !strings.Contains(page, want) {
		t.Errorf("docs/devices.md does not say %q", want)
	}
	for _, f := range nic.Families() {
		if resets := slices.Contains(resettable, f.VFDriver); resets && (f.NoRebind() || f.Finds&nic.RDMA != 0) {
			t.Errorf("%s: its VFs are reset, but the table says otherwise", f.VFDriver)
		}
		if f.Finds&nic.RDMA != 0 && f.Finds&nic.VF != 0 && !f.NoRebind() {
			t.Errorf("%s: its VFs have RDMA devices and are not reset, but the table does not say so", f.VFDriver)
		}
	}
}
