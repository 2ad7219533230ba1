package link

import (
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func TestVFsHaveWhatTheirPFHasSet(t *testing.T) {
	got := vfRecords(&netlink.LinkAttrs{Name: "ens1f0", ParentDev: "0000:03:00.0", Vfs: []netlink.VfInfo{
		{ID: 0, Mac: make(net.HardwareAddr, 6), Trust: ^uint32(0)},
		{ID: 1, Mac: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Vlan: 7, Trust: 1},
	}})
	want := []VFRecord{
		{PF: "0000:03:00.0", PFName: "ens1f0"},
		{PF: "0000:03:00.0", PFName: "ens1f0", Index: 1, MAC: "02:00:00:00:00:01", VLAN: 7, Trust: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestAHostWithoutVFsHasNone(t *testing.T) {
	if _, err := (Recorder{}).VFs(); err != nil { // of the machine that we are on
		t.Error(err)
	}
}
