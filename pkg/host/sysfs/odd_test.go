package sysfs_test

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

func TestIsSFChecksNumberAndName(t *testing.T) {
	for name, want := range map[string]bool{"ice.sf.1": true, "ice.roce.1": false, "idpf.8086.rdma.core.0": false, "sf.1": false, "sf": false} {
		if got := (sysfs.Auxiliary{Name: name}).IsSF(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestHasDriverFindsOnlyExistingDrivers(t *testing.T) {
	each(t, difftest.Read(t, "testdata/odd/drivers.txtar"), func(t *testing.T, sys *sysfs.FS) {
		for name, want := range map[string]bool{"igb": true, "vfio-pci": false, "": false, "../igb": false} {
			if got, err := sys.HasDriver(name); err != nil || got != want {
				t.Errorf("driver %q: %v, %v", name, got, err)
			}
		}
		if free, err := sys.WithoutIOMMU(); !free || err != nil {
			t.Errorf("got %v, %v", free, err)
		}
	})
}

func TestPortsReadsAtMostEight(t *testing.T) {
	fsys := fstest.MapFS{"bus/pci/devices/0000:01:00.0": {Mode: fs.ModeSymlink, Data: []byte("../../../devices/0000:01:00.0")}}
	for n := range 100 {
		port := fmt.Sprintf("devices/0000:01:00.0/net/eth%d/", n)
		fsys[port+"ifindex"] = &fstest.MapFile{Data: fmt.Appendln(nil, n)}
		fsys[port+"dev_port"] = &fstest.MapFile{Data: []byte("1\n")}
	}
	sys := sysfs.New(fsys)
	ports, err := sys.Ports(function(t, sys, "0000:01:00.0"))
	if err != nil || len(ports) != 8 || ports[0].DevPort != 1 {
		t.Errorf("%+v, %v", ports, err)
	}
	if ports, err := sys.PortsOf("pci", "0000:01:00.0"); err != nil || len(ports) != 100 {
		t.Errorf("%d, %v", len(ports), err)
	}
}
