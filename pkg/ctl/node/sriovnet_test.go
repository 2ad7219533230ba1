package node_test

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/Mellanox/rdmamap"
	"golang.org/x/sys/unix"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/ctl/node/sriovnettest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// The test compares the representors of 100 VF and SF numbers on every PCI device of the captured hosts, with and
// without devlink.
func TestSriovnetAgreesOnCapturedHosts(t *testing.T) {
	found := 0
	for _, name := range capturetest.Names(t) {
		file := capturetest.Load(t, name)
		host, err := linkhost.New(file)
		difftest.Must(t, err)
		devices, err := fs.Glob(file.Sys(), "bus/pci/devices/*")
		difftest.Must(t, err)
		without := host.Eswitch
		without.Ports = func(string) ([]link.PortRecord, error) { return nil, syscall.ENODEV }
		for _, device := range devices {
			found += agreed(t, name, host.Eswitch, path.Base(device))
			found += agreed(t, name+" without devlink", without, path.Base(device))
		}
	}
	if found < 20 {
		t.Errorf("only %d representors", found)
	}
}

// agreed compares the representors on a PF with sriovnet's, and returns how many there are.
func agreed(t *testing.T, host string, e link.Eswitch, pf string) (found int) {
	t.Helper()
	for _, flavour := range []link.Flavour{link.VF, link.SF} {
		for number := range 100 {
			ours, _, _ := e.Representor(pf, flavour, number)
			theirs, _ := sriovnettest.Sriovnet(e, pf, flavour, number)
			difftest.Same(t, fmt.Sprintf("%s: representor %d %d of %s", host, flavour, number, pf), theirs, ours)
			if ours != "" {
				found++
			}
		}
	}
	return found
}

// The SR-IOV device plugin and rdma-cni use rdmamap. It must find the same RDMA devices and device nodes as package
// sysfs for every PCI function and auxiliary device of a captured host.
func TestRdmamapAgreesOnCapturedHosts(t *testing.T) {
	linktest.Run(t, func(t *testing.T) { // rdmamap reads /sys only
		found := 0
		for _, name := range capturetest.Names(t) {
			difftest.Must(t, capturetest.Load(t, name).Unpack("/run/"+name))
			difftest.Must(t, unix.Mount("/run/"+name, "/sys", "", unix.MS_BIND, ""))
			found += sameRDMA(t, name)
		}
		if found < 15 {
			t.Errorf("only %d RDMA devices", found)
		}
	})
}

// sameRDMA compares the RDMA devices below /sys with rdmamap's and returns how many there are.
func sameRDMA(t *testing.T, host string) (found int) {
	t.Helper()
	sys, err := sysfs.Open("/sys")
	difftest.Must(t, err)
	addresses, _ := filepath.Glob("/sys/bus/pci/devices/*")
	for _, path := range addresses {
		a, err := pci.Parse(filepath.Base(path))
		difftest.Must(t, err)
		fn, _, err := sys.PCI(a)
		difftest.Must(t, err)
		devices, _, err := sys.RDMA(fn)
		nodes, nodesErr := sys.RDMANodes(fn)
		found += compare(t, host+": "+a.String(), devices, rdmamap.GetRdmaDevicesForPcidev(a.String()), nodes, err, nodesErr)
	}
	parts, err := sys.Auxiliaries()
	difftest.Must(t, err)
	for _, aux := range parts {
		devices, _, err := sys.RDMA(aux)
		nodes, nodesErr := sys.RDMANodes(aux)
		found += compare(t, host+": "+aux.Name, devices, rdmamap.GetRdmaDevicesForAuxdev(aux.Name), nodes, err, nodesErr)
	}
	return found
}

// compare compares the RDMA devices and device nodes of one device, in any order, and returns the number of RDMA
// devices. It ignores the device node rdma_cm, which all devices share.
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
		difftest.Same(t, device+", as rdmamap", lists[0], lists[1])
	}
	difftest.Must(t, errs...)
	return len(ours)
}
