package nic_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func TestTableNamesEachCardOnce(t *testing.T) {
	ids, drivers := map[string]string{}, map[string]bool{}
	for _, f := range nic.Families() {
		if drivers[f.Driver] {
			t.Errorf("two rows have the driver %s", f.Driver)
		}
		drivers[f.Driver] = true
		for _, found := range f.Finds {
			if !slices.Contains([]string{nic.VF, nic.Switchdev, nic.RDMA, nic.VDPA, nic.VFIO}, found) {
				t.Errorf("%s: finds %q, which is none of the words", f.Driver, found)
			}
		}
		for _, p := range f.Products {
			for _, id := range slices.Concat(p.IDs, p.VFs) {
				if ids[id] != "" {
					t.Errorf("%s is both %s and %s", id, ids[id], p.Name)
				}
				ids[id] = p.Name
			}
		}
		if len(f.VFDriver) == 0 && slices.Contains(f.Finds, nic.VF) {
			t.Errorf("%s: VFs without a driver", f.Driver)
		}
	}
}

// The table and package hostdev must agree which drivers prove that a function has one port.
func TestSeveralPortsAreThoseOfCode(t *testing.T) {
	const dir = "devices/pci0000:00/0000:3b:00.0/"
	for _, f := range nic.Families() {
		for _, driver := range []string{f.Driver, f.VFDriver} {
			if driver == "" || slices.Contains([]string{"hv_netvsc", "cxi_core", "efa", "erdma", "pds_core"}, driver) { // no interface on a PCI function
				continue
			}
			tree := sysfs.New(fstest.MapFS{
				"bus/pci/devices/0000:3b:00.0": {Mode: fs.ModeSymlink, Data: []byte("../../../" + dir)},
				dir + "driver":                 {Mode: fs.ModeSymlink, Data: []byte("../../../bus/pci/drivers/" + driver)},
				dir + "net/eth0/dev_port":      {Data: []byte("0\n")},
				dir + "net/eth0/ifindex":       {Data: []byte("2\n")},
			})
			fn, ok, err := tree.PCI(pci.Address{Bus: 0x3b})
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			count, err := hostdev.CountPorts(tree, fn, nil)
			difftest.Must(t, err)
			if got, several := count == hostdev.AtMostOnePort, slices.Contains(f.Limits, "several ports"); got == several && driver != "nfp_netvf" {
				t.Errorf("%s: several ports %v in the table, one port %v in package hostdev", driver, several, got)
			}
		}
	}
}

// Each card of a captured host has a row, which says what devinfo finds on it, and names the capture. The machine of a report
// may have others, which its owner has not tried.
func TestTableKnowsCapturedHosts(t *testing.T) {
	seen := 0
	for _, name := range capturetest.Names(t) {
		file := capturetest.Load(t, name)
		links, err := linkhost.New(file)
		difftest.Must(t, err)
		sys := sysfs.New(file.Sys())
		devices, _, err := hostdev.Read(hostdev.Host{Sys: sys, Links: links.Links, Eswitches: links})
		difftest.Must(t, err)
		how := nic.Captured
		if strings.Contains(file.Comment, "from documentation") {
			how = nic.Written
		}
		for _, d := range devices {
			if d.Function == nil || d.PCI == "" || d.Kind == hostdev.RDMA {
				continue
			}
			vendor, device, err := sys.IDs(d.Function.Address)
			difftest.Must(t, err)
			f, _ := nic.Of(vendor, device, d.Driver)
			if f == nil {
				if report := string(file.File(capturetest.Report)); report == "" || strings.Contains(report, `"Function": "`+d.PCI+`"`) {
					t.Errorf("%s: %s (%s:%s, driver %q) has no row", name, d.PCI, vendor, device, d.Driver)
				}
				continue
			}
			seen++
			for _, found := range []struct {
				what  string
				there bool
			}{
				{nic.VF, d.Parent != nil}, {nic.Switchdev, d.Representor != ""}, {nic.RDMA, len(d.RDMA.Devices) > 0 && !d.RDMA.Netdev}, {nic.VFIO, d.Driver == "vfio-pci"},
			} {
				if found.there && !slices.Contains(f.Finds, found.what) {
					t.Errorf("%s: %s has %s, but the row of %s does not", name, d.PCI, found.what, f.Driver)
				}
			}
			is := func(trial nic.Trial) bool { return trial.Host == name }
			if at := slices.IndexFunc(f.Tried, is); at >= 0 && f.Tried[at].How != how && f.Tried[at].How != nic.Reported {
				t.Errorf("%s: the row of %s says %q of a capture that is %q", name, f.Driver, f.Tried[at].How, how)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d functions were compared", seen)
	}
}

func TestSeenNamesTheCardsOfCapturedHosts(t *testing.T) {
	text := ""
	untried, err := capturefile.Parse(capturetest.Ports("mlx4_core", 1))
	difftest.Must(t, err)
	for _, name := range append(capturetest.Described(t), "untried") {
		file := untried
		if name != "untried" {
			file = capturetest.Load(t, name)
		}
		sys := sysfs.New(file.Sys())
		devices, _, err := hostdev.Read(hostdev.Host{Sys: sys})
		difftest.Must(t, err)
		cards, err := nic.Seen(sys, devices)
		difftest.Must(t, err)
		capturetest.EachFailure(sys.Files(), func(files fs.FS, failed *string) {
			if _, err := nic.Seen(sysfs.New(files), devices); (err != nil) != (*failed != "") {
				t.Errorf("%s: %q fails, and the error is %v", name, *failed, err)
			}
		})
		for _, card := range cards {
			text += fmt.Sprintf("%s: %s, on a card: %v\n", name, card.Text, card.OnCard)
		}
	}
	goldentest.File(t, "testdata/seen.txt", text)
}

// A row must not claim more than the repository has: a capture for each trial but those in QEMU, whose drivers are those of
// test/vm, and a date with versions for each report.
func TestTrialsAreThere(t *testing.T) {
	machine := difftest.Read(t, "../../../test/vm/README.md")
	for _, f := range nic.Families() {
		for _, trial := range f.Tried {
			switch trial.How {
			case nic.Emulated:
				if !strings.Contains(machine, " "+f.Driver+" ") {
					t.Errorf("%s: test/vm/README.md lists no device with this driver", f.Driver)
				}
				continue
			case nic.Reported:
				if trial.Date == "" || trial.With == "" {
					t.Errorf("%s: a report without date and versions", f.Driver)
				}
			case nic.Written, nic.Captured:
			default:
				t.Errorf("%s: tried by %q, which is none of the words", f.Driver, trial.How)
			}
			if _, err := os.Stat("../../../testdata/hosts/" + trial.Host + ".txtar"); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: testdata/hosts has no capture %q", f.Driver, trial.Host)
			}
		}
	}
}

func TestOfKnowsIDsAndDrivers(t *testing.T) {
	for _, test := range []struct{ vendor, device, driver, want string }{
		{"0x8086", "0x1592", "ice", "ice E810"},
		{"8086", "1889", "vfio-pci", "ice E800 series"},
		{"14e4", "16dc", "bnxt_en", "bnxt_en BCM574xx"},
		{"0x14e4", "0x16d7", "", "bnxt_en BCM57414"},
		{"0x15b3", "0x1003", "mlx4_core", "mlx4_core ConnectX-3"},
		{"0x15b3", "0xffff", "mlx5_core", "mlx5_core "},
		{"0x1414", "0x00ba", "mana", "mana Azure MANA"},
		{"0xabcd", "0x0001", "igbvf", "igb "},
		{"0xabcd", "0x0001", "vfio-pci", "none"},
		{"0xabcd", "0x0001", "", "none"},
	} {
		got := "none"
		if f, product := nic.Of(test.vendor, test.device, test.driver); f != nil {
			got = fmt.Sprint(f.Driver, " ", product)
		}
		difftest.Same(t, test.vendor+":"+test.device, got, test.want)
	}
	reported := nic.Family{Tried: []nic.Trial{{How: nic.Reported, Date: "2026-11-28", With: "Linux 6.18"}}}
	difftest.Equal(t, reported.HowTried(), "report of 2026-11-28 (Linux 6.18)")
}
