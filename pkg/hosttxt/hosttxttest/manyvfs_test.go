package hosttxttest_test

import (
	"encoding/json"
	"io/fs"
	"testing"

	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
)

func TestVFsRunOverSeveralBuses(t *testing.T) {
	for i, want := range map[int]string{0: "0000:3b:00.2", 5: "0000:3b:00.7", 6: "0000:3b:01.0", 253: "0000:3b:1f.7", 254: "0000:3c:00.0", 1023: "0000:3f:00.1"} {
		if got := hosttxttest.VF(i); got != want {
			t.Errorf("VF %d is %s, want %s", i, got, want)
		}
	}
}

func TestEveryVFIsWhole(t *testing.T) {
	const n = 1024
	h := hosttxttest.ManyVFs(n)
	sys := h.Sys()
	for i := range n {
		vf := "bus/pci/devices/" + hosttxttest.VF(i)
		if _, err := fs.Stat(sys, vf+"/physfn/sriov_offset"); err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"net", "infiniband", "iommu_group/devices", "driver", "subsystem/devices"} {
			if _, err := fs.ReadDir(sys, vf+"/"+dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	if links, err := fs.Glob(sys, "bus/pci/devices/0000:3b:00.0/virtfn*"); err != nil || len(links) != n {
		t.Errorf("PF has %d VFs, %v; want %d", len(links), err, n)
	}
	var links []struct{ Ifname, Parentdev string }
	if err := json.Unmarshal(h.File("netlink/ip-link.json"), &links); err != nil {
		t.Fatal(err)
	}
	if last := links[n]; last.Ifname != "ens1f0v1023" || last.Parentdev != hosttxttest.VF(n-1) {
		t.Errorf("the last interface is %+v", last)
	}
}

func BenchmarkManyVFs(b *testing.B) {
	for b.Loop() {
		hosttxttest.ManyVFs(1024)
	}
}
