package sysfs_test

import (
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/sysfs"
)

func TestPortsOfAFunction(t *testing.T) {
	for host, functions := range map[string]map[string][]sysfs.Port{
		"igb-sriov":      {"0000:01:00.0": {{Name: "eth0", Index: 2}}, "0000:01:10.6": nil},
		"mlx5-legacy":    {"0000:3b:00.0": {{Name: "ens1f0np0", Index: 4, PortName: "p0"}}},
		"mlx5-switchdev": {"0000:03:00.3": nil}, // its interface is in a pod, and that of its SF is not its own
		"vdpa-vf":        {"0000:02:00.0": nil}, // virtio: below virtio3/net
	} {
		sys := sysfs.New(load(t, host).Sys())
		for address, want := range functions {
			got, err := sys.Ports(function(t, sys, address))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %s: %v\n%s", host, address, err, diff)
			}
		}
	}
}

func TestOfManyPortsAFewAreRead(t *testing.T) {
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
	if ports, err := sys.AllPorts(function(t, sys, "0000:01:00.0")); err != nil || len(ports) != 100 {
		t.Errorf("%d, %v", len(ports), err)
	}
}
