package agent

import (
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/check/checktest"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// A PF in switchdev mode has an interface for each VF, so that a look-up for each attachment would read 10⁶ files for 1,000.
func TestInterfacesOfPFAreReadOnceForAllItsVFs(t *testing.T) {
	host, reads := capturetest.Load(t, "mlx5-switchdev"), 0
	finder := checktest.Finder(t, host)
	finder.Sys = sysfs.New(capturetest.Tree{FS: host.Sys(), BeforeCall: func(name string) error {
		if strings.HasSuffix(name, "/0000:03:00.0/net") {
			reads++
		}
		return nil
	}})
	d := describer{finder, map[pci.Address]string{}}
	for n, address := range []string{"0000:03:00.2", "0000:03:00.3", "0000:03:00.4"} {
		s := d.series(&journal.Entry{Device: journal.Identity{Type: "pci", ID: address}})
		difftest.Equal(t, s[5:8], []string{address, "p0", strconv.Itoa(n)})
	}
	difftest.Same(t, "reads of the PF's directory of interfaces", reads, 1)
}
