package restore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
)

// The page for owners of NICs names the drivers that are bound again by default. Their VFs have no other devices.
func TestPageOfNICsNamesDriversThatAreReset(t *testing.T) {
	want := "`reset: auto`, only " + strings.Join(resettable[:len(resettable)-1], ", ") + " and " + resettable[len(resettable)-1]
	if page := strings.Join(strings.Fields(difftest.Read(t, "../../../../docs/devices.md")), " "); !strings.Contains(page, want) {
		t.Errorf("docs/devices.md does not say %q", want)
	}
	for _, f := range nic.Families() {
		if slices.Contains(resettable, f.VFDriver) && slices.Contains(f.Finds, nic.RDMA) {
			t.Errorf("%s: its VFs are reset, and have RDMA devices", f.VFDriver)
		}
	}
}

// Notes of builds before the dump have six settings.
func TestOldNoteGivesItsSettings(t *testing.T) {
	kernels := settings.Dump{settings.AltNames: "x", "alias": "78", "group": "07000000", "txqueuelen": "07000000", "promisc": "on", "allmulti": "on", "mode": "00"}
	for want, note := range map[string]older{
		`map[alias:79 allmulti:on altnames:a b group:01000000 mode:00 promisc:on txqueuelen:02000000]`: {[]string{"a", "b"}, "y", 1, 2, true, true},
		`map[group:00000000 mode:00 txqueuelen:00000000]`:                                              {},
	} {
		dump := maps.Clone(kernels)
		note.into(dump)
		difftest.Equal(t, fmt.Sprint(map[string]string(dump)), want)
	}
	none := settings.Dump{}
	(&older{Group: 1, TxQueue: 2}).into(none)
	difftest.Equal(t, none, settings.Dump{})
}
