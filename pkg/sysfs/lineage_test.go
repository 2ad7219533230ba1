package sysfs_test

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/sysfs"
)

// lineageHost has a PF with a VF, which has an SF; vDPA devices on the VF, on the SF and without a
// parent; and a part of the VF that is no SF.
func lineageHost() *sysfs.FS {
	fsys := fstest.MapFS{}
	device := func(bus, name, dir string) {
		fsys["bus/"+bus+"/devices/"+name] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../../../" + dir)}
		fsys[dir+"/uevent"] = &fstest.MapFile{}
	}
	const pf, vf = "devices/pci0000:00/0000:01:00.0", "devices/pci0000:00/0000:01:10.0"
	device("pci", "0000:01:00.0", pf)
	device("pci", "0000:01:10.0", vf)
	fsys[vf+"/physfn"] = &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("../0000:01:00.0")}
	device("auxiliary", "mlx5_core.sf.4", vf+"/mlx5_core.sf.4")
	fsys[vf+"/mlx5_core.sf.4/sfnum"] = &fstest.MapFile{Data: []byte("88\n")}
	device("auxiliary", "pds_core.vDPA.1", vf+"/pds_core.vDPA.1")
	device("vdpa", "onvf", vf+"/onvf")
	device("vdpa", "onpart", vf+"/pds_core.vDPA.1/onpart")
	device("vdpa", "onsf", vf+"/mlx5_core.sf.4/onsf")
	device("vdpa", "alone", "devices/alone")
	return sysfs.New(fsys)
}

func TestALineageEndsAtThePF(t *testing.T) {
	for name, want := range map[string][]string{
		"0000:01:00.0":    {"pci-0000:01:00.0"},
		"0000:01:10.0":    {"pci-0000:01:10.0", "pci-0000:01:00.0"},
		"mlx5_core.sf.4":  {"auxiliary-mlx5_core.sf.4", "pci-0000:01:10.0", "pci-0000:01:00.0"},
		"pds_core.vDPA.1": {"pci-0000:01:10.0", "pci-0000:01:00.0"},
		"onvf":            {"vdpa-onvf", "pci-0000:01:10.0", "pci-0000:01:00.0"},
		"onpart":          {"vdpa-onpart", "pci-0000:01:10.0", "pci-0000:01:00.0"},
		"onsf":            {"vdpa-onsf", "auxiliary-mlx5_core.sf.4", "pci-0000:01:10.0", "pci-0000:01:00.0"},
		"alone":           {"vdpa-alone"},
		"0000:09:00.0":    nil,
		"opaque-17":       nil,
		"":                nil,
	} {
		line, err := lineageHost().Lineage(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, device := range line {
			got = append(got, device.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
