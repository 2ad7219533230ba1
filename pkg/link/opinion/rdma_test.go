package opinion_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/Mellanox/rdmamap"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/difftest"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link/linktest"
	"devinfo-cni.io/pkg/sysfs"
)

var must = difftest.Must

// Package sysfs and rdmamap, by which the SR-IOV device plugin and rdma-cni find RDMA devices,
// name the same ones for every PCI function and auxiliary device of a captured host, and the
// same nodes.
func TestRdmamapAgreesOnCapturedHosts(t *testing.T) {
	names, err := filepath.Glob("../../../testdata/hosts/*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("%d hosts, %v", len(names), err)
	}
	linktest.Run(t, func(t *testing.T) { // rdmamap looks at /sys and nowhere else
		found := 0
		for _, name := range names {
			host, err := hosttxt.Load(name)
			must(t, err)
			dir := "/run/" + filepath.Base(name)
			must(t, host.Unpack(dir))
			must(t, unix.Mount(dir, "/sys", "", unix.MS_BIND, ""))
			found += sameRDMA(t, filepath.Base(name))
		}
		if found < 15 {
			t.Errorf("only %d RDMA devices", found)
		}
	})
}

// sameRDMA counts the RDMA devices below /sys.
func sameRDMA(t *testing.T, host string) (found int) {
	t.Helper()
	sys, err := sysfs.Open("/sys")
	must(t, err)
	addresses, _ := filepath.Glob("/sys/bus/pci/devices/*")
	for _, path := range addresses {
		a, err := pci.Parse(filepath.Base(path))
		must(t, err)
		fn, _, err := sys.PCI(a)
		must(t, err)
		devices, err := sys.RDMA(fn)
		nodes, nodesErr := sys.RDMANodes(fn)
		found += compare(t, host+": "+a.String(), devices, rdmamap.GetRdmaDevicesForPcidev(a.String()), nodes, err, nodesErr)
	}
	parts, err := sys.Auxiliaries()
	must(t, err)
	for _, aux := range parts {
		devices, err := sys.RDMA(aux)
		nodes, nodesErr := sys.RDMANodes(aux)
		found += compare(t, host+": "+aux.Name, devices, rdmamap.GetRdmaDevicesForAuxdev(aux.Name), nodes, err, nodesErr)
	}
	return found
}

// compare holds what both find of one device against each other, in any order. Of the nodes of
// all devices, rdma_cm is not the device's.
func compare(t *testing.T, device string, ours, theirs, nodes []string, errs ...error) int {
	t.Helper()
	var theirNodes []string
	for _, name := range theirs {
		for _, path := range rdmamap.GetRdmaCharDevices(name) {
			if path != rdmamap.RdmaUcmDevice {
				theirNodes = append(theirNodes, strings.TrimPrefix(path, rdmamap.RdmaDeviceDir+"/"))
			}
		}
	}
	for _, lists := range [][2][]string{{ours, theirs}, {nodes, theirNodes}} {
		slices.Sort(lists[0])
		slices.Sort(lists[1])
		if !slices.Equal(lists[0], lists[1]) {
			t.Errorf("%s: %q; rdmamap: %q", device, lists[0], lists[1])
		}
	}
	for _, err := range errs {
		if err != nil {
			t.Errorf("%s: %v", device, err)
		}
	}
	return len(ours)
}
