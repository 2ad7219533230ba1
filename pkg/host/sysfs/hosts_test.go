package sysfs_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// A teller calls every method of a sysfs and writes a line for each device, without zero values. It only checks
// that HasDriver and Inode return no error.
type teller struct {
	*sysfs.FS
	strings.Builder
	errs []error
}

func (t *teller) failed(errs ...error) { t.errs = append(t.errs, errs...) }

// line writes a line of alternating keys and values.
func (t *teller) line(words ...any) {
	fmt.Fprintf(t, "%s %s", words[0], words[1])
	for n := 2; n < len(words); n += 2 {
		parts := strings.FieldsFunc(fmt.Sprint(words[n+1]), func(r rune) bool { return strings.ContainsRune(" []{}", r) })
		if text := strings.Join(parts, ","); text != "" && text != "0" && text != "<nil>" && text != "false" {
			fmt.Fprintf(t, " %s=%s", words[n], text)
		}
	}
	fmt.Fprintln(t)
}

func (t *teller) names(bus string) []fs.DirEntry {
	list, err := fs.ReadDir(t.Files(), path.Join("bus", bus, "devices"))
	if !sysfs.Absent(err) {
		t.failed(err)
	}
	return list
}

// ids returns the IDs of a device's lineage.
func (t *teller) ids(name string) (ids []string) {
	line, err := t.Lineage(name)
	t.failed(err)
	for _, o := range line {
		ids = append(ids, o.ID)
	}
	return ids
}

func (t *teller) carried(d sysfs.Device) (names []string) {
	list, err := t.VDPAOn(d)
	t.failed(err)
	for _, v := range list {
		names = append(names, v.Name)
	}
	return names
}

func (t *teller) numbers(bus, name string) []string {
	numbers, err := t.NodeNumbers(bus, name)
	t.failed(err)
	return numbers
}

func (t *teller) function(name string) {
	a, err := pci.Parse(name)
	fn, ok, readErr := t.PCI(a)
	if t.failed(err, readErr); !ok {
		return
	}
	vfs, most, _, e1 := t.VFs(fn)
	number := ""
	if fn.PF != nil {
		n, ok, err := t.VFIndex(*fn.PF, a)
		t.failed(err)
		if ok {
			number = fmt.Sprint("no.", n)
		}
	}
	vendor, device, e2 := t.IDs(a)
	node, onNode, e3 := t.NUMANode(a)
	numa := ""
	if onNode {
		numa = fmt.Sprint("no.", node)
	}
	rdma, _, e4 := t.RDMA(fn)
	nodes, e5 := t.RDMANodes(fn)
	vfio, onVFIO, e6 := t.VFIO(fn)
	ports, e7 := t.Ports("pci", name, sysfs.AllPorts)
	group, members, e10 := t.IOMMUGroup(fn)
	override, e11 := t.Override(fn)
	below, e12 := t.RDMABelow("pci", name)
	_, _, e13 := t.Inode("pci", name)
	_, e14 := t.HasDriver(fn.Driver)
	sfs, e15 := t.HasSFs(fn)
	has, e16 := t.HasPorts("pci", name)
	count, all, e17 := t.RDMAPorts(fn)
	rdmaPorts := ""
	if count > 0 {
		rdmaPorts = fmt.Sprint(count, all)
	}
	t.failed(e1, e2, e3, e4, e5, e6, e7, e10, e11, e12, e13, e14, e15, e16, e17)
	t.line("function", fn.Address, "driver", fn.Driver, "pf", fn.PF, "vf", number, "vfs", vfs, "most", most, "sfs", sfs, "vendor", vendor, "device", device, "numa", numa,
		"rdma", rdma, "below", below.Devices, "rdma-ports", rdmaPorts, "nodes", nodes, "numbers", t.numbers("pci", name), "layer", below.LinkLayer, "netdev", below.Netdev, "vfio", []any{onVFIO, vfio}, "has-ports", has, "ports", ports, "vdpa", t.carried(fn),
		"group", group, "members", members, "override", override, "line", t.ids(name))
}

func (t *teller) devices() {
	for _, at := range t.names("pci") {
		t.function(at.Name())
	}
	functions, e1 := t.Functions()
	auxiliaries, e2 := t.Auxiliaries()
	for _, a := range auxiliaries {
		rdma, _, err := t.RDMA(a)
		nodes, nodesErr := t.RDMANodes(a)
		t.failed(err, nodesErr)
		number := ""
		if a.SFNumber != nil {
			number = fmt.Sprint("no.", *a.SFNumber)
		}
		t.line("auxiliary", a.Name, "sfnum", number, "sf", a.IsSF(), "pci", a.PCI, "rdma", rdma, "nodes", nodes, "numbers", t.numbers("auxiliary", a.Name), "vdpa", t.carried(a), "line", t.ids(a.Name))
	}
	vdpas, e3 := t.VDPAs()
	for _, v := range vdpas {
		t.line("vdpa", v.Name, "driver", v.Driver, "pci", v.PCI, "aux", v.Aux, "sf", v.SF, "vhost", v.Vhost, "virtio", v.Virtio, "numbers", t.numbers("vdpa", v.Name), "by", v.Management(), "line", t.ids(v.Name))
	}
	for _, at := range t.names("virtio") {
		v, ok, err := t.Virtio(at.Name())
		mac, _, macErr := t.VirtioMAC(at.Name())
		if t.failed(err, macErr); !ok {
			continue
		}
		t.line("virtio", at.Name(), "pci", v.PCI, "vdpa", v.VDPA, "mac", mac)
	}
	netdevs, e4 := t.Netdevs()
	for _, n := range netdevs {
		medium, err := t.Medium(n.Name)
		t.failed(err)
		kind := ""
		if medium.Type != nil {
			kind = fmt.Sprint(*medium.Type)
		}
		t.line("interface", n.Name, "bus", n.Bus, "device", n.Device, "port", n.DevPort, "type", kind, "speed", medium.Speed != nil)
	}
	rdmas, e5 := t.RDMADevices()
	for _, d := range rdmas {
		t.line("rdma", d.Name, "bus", d.Bus, "device", d.Device, "netdev", d.Netdev)
	}
	aparts, e8 := t.RDMAApart()
	for _, a := range aparts {
		t.line("apart", a.Name, "device", a.Device, "netdev", a.Netdev, "guid", a.GUID, "nodes", a.Nodes)
	}
	free, e6 := t.WithoutIOMMU()
	shared, e7 := t.IsRDMAShared()
	t.failed(e1, e2, e3, e4, e5, e6, e7, e8)
	t.line("host", "of", "controllers", len(functions), "noiommu", free, "rdmashared", shared)
}

func told(sys *sysfs.FS) (string, error) {
	t := &teller{FS: sys}
	t.devices()
	return t.String(), errors.Join(t.errs...)
}

func TestHostsAreReadCompletely(t *testing.T) {
	hosts := map[string]string{}
	for _, name := range capturetest.Described(t) {
		hosts[name] = load(t, name)
	}
	for _, name := range difftest.Names(t, "testdata/odd") {
		if name, ok := strings.CutSuffix(name, ".txtar"); ok {
			hosts["odd/"+name] = difftest.Read(t, "testdata/odd/"+name+".txtar")
		}
	}
	for name, text := range hosts {
		t.Run(name, func(t *testing.T) {
			each(t, text, func(t *testing.T, sys *sysfs.FS) {
				got, err := told(sys)
				difftest.Must(t, err)
				goldentest.File(t, "testdata/"+name+".txt", got)
			})
		})
	}
}

// In RDMA's exclusive mode, infiniband/* does not show the RDMA devices of other network namespaces.
func TestHiddenListIsNotTakenForEmpty(t *testing.T) {
	compared := 0
	for _, name := range capturetest.Names(t) {
		file := capturetest.Load(t, name)
		seen, hidden := sysfs.New(file.Sys()), sysfs.New(capturetest.Tree{FS: file.Sys(), BeforeCall: func(name string) error {
			if path.Base(name) == "infiniband" {
				return fs.ErrNotExist
			}
			return nil
		}})
		functions, err := seen.Functions()
		difftest.Must(t, err)
		for _, fn := range functions {
			devices, _, err := seen.RDMA(fn)
			others, from, err2 := hidden.RDMA(fn)
			difftest.Must(t, cmp.Or(err, err2))
			difftest.Same(t, name+" "+fn.Address.String(), others, devices)
			if len(others) > 0 {
				difftest.Same(t, name+" "+fn.Address.String(), from, "infiniband_verbs/*/ibdev")
			}
			compared += len(devices)
		}
	}
	if compared == 0 {
		t.Error("no RDMA devices were compared")
	}
}

// A failed read must cause an error in each method that reads the file, unless the error means that the value
// is absent. The error must name the file.
func TestFailedReadIsErrorUnlessValueIsAbsent(t *testing.T) {
	for _, host := range []string{"igb-sriov", "mlx5-vdpa", "vdpa-vf-virtio", "vdpa-sim", "erdma"} {
		tree, reads := capturetest.Tree{FS: parse(t, load(t, host)).Sys()}, map[string]bool{}
		tree.BeforeCall = func(name string) error { reads[name] = true; return nil }
		if _, err := told(sysfs.New(tree)); err != nil || len(reads) < 50 {
			t.Fatalf("%s: %d files, %v", host, len(reads), err)
		}
		for name := range reads {
			for errno, absent := range map[syscall.Errno]bool{syscall.EIO: false, syscall.EOPNOTSUPP: true} {
				failed := 0
				tree.BeforeCall = func(asked string) error {
					if asked != name {
						return nil
					}
					failed++
					return errno
				}
				_, err := told(sysfs.New(tree))
				errs, want := joined(err), failed
				if absent {
					want = 0
				}
				strange := slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, errno) || !strings.Contains(err.Error(), name) })
				if len(errs) != want || strange {
					t.Errorf("%s, %s fails with %v in %d reads: %d errors: %v", host, name, errno, failed, len(errs), err)
				}
			}
		}
	}
}

// joined returns the errors that errors.Join combined.
func joined(err error) []error {
	if err == nil {
		return nil
	}
	return err.(interface{ Unwrap() []error }).Unwrap()
}
