package sysfs_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/pci"
	"devinfo-cni.io/pkg/sysfs"
)

func load(t *testing.T, name string) *hosttxt.Host {
	t.Helper()
	h, err := hosttxt.Load("../../testdata/hosts/" + name + ".txtar")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func made(t *testing.T, text string) *hosttxt.Host {
	t.Helper()
	h, err := hosttxt.Parse([]byte("made up\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// each runs f on the host twice: on its text, and on directories and links on the
// disk, which Open reads as it reads /sys.
func each(t *testing.T, h *hosttxt.Host, f func(t *testing.T, sys *sysfs.FS)) {
	t.Helper()
	t.Run("text", func(t *testing.T) { f(t, sysfs.New(h.Sys())) })
	t.Run("disk", func(t *testing.T) {
		dir := t.TempDir()
		if err := h.Unpack(dir); err != nil {
			t.Fatal(err)
		}
		sys, err := sysfs.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		f(t, sys)
	})
}

func addr(t *testing.T, s string) pci.Address {
	t.Helper()
	a, err := pci.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// maybe is addr, and nil for "".
func maybe(t *testing.T, s string) *pci.Address {
	t.Helper()
	if s == "" {
		return nil
	}
	a := addr(t, s)
	return &a
}

func function(t *testing.T, sys *sysfs.FS, s string) sysfs.Function {
	t.Helper()
	fn, ok, err := sys.PCI(addr(t, s))
	if !ok || err != nil {
		t.Fatalf("PCI(%s): %v, %v", s, ok, err)
	}
	return fn
}

func auxiliary(t *testing.T, sys *sysfs.FS, name string) sysfs.Auxiliary {
	t.Helper()
	aux, ok, err := sys.Auxiliary(name)
	if !ok || err != nil {
		t.Fatalf("Auxiliary(%s): %v, %v", name, ok, err)
	}
	return aux
}

// public is a copy of v that has its exported fields only, so that structs can be
// compared as a whole.
func public[T any](v T) T {
	var c T
	from, to := reflect.ValueOf(v), reflect.ValueOf(&c).Elem()
	for n := range from.NumField() {
		if from.Type().Field(n).IsExported() {
			to.Field(n).Set(from.Field(n))
		}
	}
	return c
}

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		g, _ := json.Marshal(got)
		w, _ := json.Marshal(want)
		t.Errorf("%s:\n got %s\nwant %s", what, g, w)
	}
}

func TestNamesThatAreNoDirectoryEntryAreAbsent(t *testing.T) {
	each(t, load(t, "mlx5-vdpa"), func(t *testing.T, sys *sysfs.FS) {
		for _, name := range []string{
			"", ".", "..", "/", "../vdpa", "devices/vdpa4", "vdpa4/", "/vdpa4", "../../vdpa/devices/vdpa4", "vdpa4/..",
			"\x00", "a\x00b", "\xff", "vdpa", "nothing", strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("x", 5000),
		} {
			if _, ok, err := sys.Auxiliary(name); ok || err != nil {
				t.Errorf("Auxiliary(%.20q): %v, %v", name, ok, err)
			}
			if _, ok, err := sys.VDPA(name); ok || err != nil {
				t.Errorf("VDPA(%.20q): %v, %v", name, ok, err)
			}
			if _, ok, err := sys.Virtio(name); ok || err != nil {
				t.Errorf("Virtio(%.20q): %v, %v", name, ok, err)
			}
			if _, ok, err := sys.VirtioMAC(name); ok || err != nil {
				t.Errorf("VirtioMAC(%.20q): %v, %v", name, ok, err)
			}
		}
		// From bus/virtio/devices these lead to interfaces that are no virtio device's.
		for _, name := range []string{"../../pci/devices/0000:65:00.2", "virtio7/../virtio7"} {
			if mac, ok, err := sys.VirtioMAC(name); ok || err != nil {
				t.Errorf("VirtioMAC(%q): %q, %v, %v", name, mac, ok, err)
			}
		}
	})
}

func TestOpenOfWhatIsNoDirectoryFails(t *testing.T) {
	if _, err := sysfs.Open(t.TempDir() + "/sys"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want one that says it does not exist", err)
	}
	if _, err := sysfs.Open("/dev/null"); err == nil {
		t.Error("no error")
	}
}

func TestFilesIsTheTreeItself(t *testing.T) {
	each(t, load(t, "igb-sriov"), func(t *testing.T, sys *sysfs.FS) {
		if data, err := fs.ReadFile(sys.Files(), "bus/pci/devices/0000:01:00.0/sriov_stride"); err != nil || string(data) != "2\n" {
			t.Errorf("%q, %v", data, err)
		}
	})
}

// failing fails for one name with one error.
type failing struct {
	fs.FS
	name string
	err  error
}

func (f failing) fails(op, name string) error {
	if name != f.name {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: f.err}
}

func (f failing) Open(name string) (fs.File, error) {
	if err := f.fails("open", name); err != nil {
		return nil, err
	}
	return f.FS.Open(name)
}

func (f failing) ReadFile(name string) ([]byte, error) {
	if err := f.fails("read", name); err != nil {
		return nil, err
	}
	return fs.ReadFile(f.FS, name)
}

func (f failing) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := f.fails("readdir", name); err != nil {
		return nil, err
	}
	return fs.ReadDir(f.FS, name)
}

func (f failing) Stat(name string) (fs.FileInfo, error) {
	if err := f.fails("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(f.FS, name)
}

func (f failing) ReadLink(name string) (string, error) {
	if err := f.fails("readlink", name); err != nil {
		return "", err
	}
	return fs.ReadLink(f.FS, name)
}

func (f failing) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(f.FS, name) }

// reads names every file that each method reads, and asks the method.
func reads(t *testing.T) map[string]struct {
	host  string
	names []string
	ask   func(sys *sysfs.FS) error
} {
	const (
		igb    = "devices/pci0000:00/0000:00:05.0/0000:01:00.0"
		igbVF  = "devices/pci0000:00/0000:00:05.0/0000:01:10.2"
		cx6    = "devices/pci0000:64/0000:64:02.0/0000:65:00.0"
		cx6VF  = "devices/pci0000:64/0000:64:02.0/0000:65:00.4"
		virtio = "devices/pci0000:00/0000:00:06.0/0000:02:00.1"
	)
	type read = struct {
		host  string
		names []string
		ask   func(sys *sysfs.FS) error
	}
	return map[string]read{
		"PCI": {"igb-sriov", []string{"bus/pci/devices/0000:01:10.2", igbVF + "/driver", igbVF + "/physfn"}, func(sys *sysfs.FS) error {
			_, _, err := sys.PCI(addr(t, "0000:01:10.2"))
			return err
		}},
		"VFIndex": {"igb-sriov", []string{"bus/pci/devices/0000:01:00.0", igb + "/sriov_offset", igb + "/sriov_stride", igb + "/virtfn1"}, func(sys *sysfs.FS) error {
			_, _, err := sys.VFIndex(addr(t, "0000:01:00.0"), addr(t, "0000:01:10.2"))
			return err
		}},
		"RDMA": {"mlx5-vdpa", []string{cx6 + "/infiniband"}, func(sys *sysfs.FS) error {
			_, err := sys.RDMA(function(t, sys, "0000:65:00.0"))
			return err
		}},
		"Auxiliary": {"mlx5-vdpa", []string{"bus/auxiliary/devices/mlx5_core.sf.2", cx6 + "/mlx5_core.sf.2/sfnum"}, func(sys *sysfs.FS) error {
			_, _, err := sys.Auxiliary("mlx5_core.sf.2")
			return err
		}},
		"RDMAOf": {"mlx5-vdpa", []string{cx6 + "/mlx5_core.sf.2/infiniband"}, func(sys *sysfs.FS) error {
			_, err := sys.RDMAOf(auxiliary(t, sys, "mlx5_core.sf.2"))
			return err
		}},
		"VDPA": {"vdpa-vf-virtio", []string{
			"bus/vdpa/devices/vpvdpa0", virtio + "/vpvdpa0/driver", virtio + "/vpvdpa0",
			"bus/auxiliary/devices/0000:02:00.1", "bus/pci/devices/0000:02:00.1",
		}, func(sys *sysfs.FS) error {
			_, _, err := sys.VDPA("vpvdpa0")
			return err
		}},
		"VDPAOn": {"mlx5-vdpa", []string{cx6VF + "/sriov_numvfs", "bus/vdpa", cx6VF, "bus/vdpa/devices/vdpa4", cx6VF + "/vdpa4/driver"}, func(sys *sysfs.FS) error {
			_, err := sys.VDPAOn(function(t, sys, "0000:65:00.4"))
			return err
		}},
		"VDPAOnAuxiliary": {"mlx5-vdpa", []string{"bus/vdpa", cx6 + "/mlx5_core.sf.2", "bus/vdpa/devices/vdpa6"}, func(sys *sysfs.FS) error {
			_, err := sys.VDPAOnAuxiliary(auxiliary(t, sys, "mlx5_core.sf.2"))
			return err
		}},
		"Virtio": {"mlx5-vdpa", []string{"bus/virtio/devices/virtio7", "bus/vdpa/devices/vdpa4"}, func(sys *sysfs.FS) error {
			_, _, err := sys.Virtio("virtio7")
			return err
		}},
		"VirtioMAC": {"mlx5-vdpa", []string{"bus/virtio/devices/virtio8", cx6 + "/virtio8/net", cx6 + "/virtio8/net/eth13/address"}, func(sys *sysfs.FS) error {
			_, _, err := sys.VirtioMAC("virtio8")
			return err
		}},
	}
}

func TestReadThatFailsIsAnErrorThatNamesTheFile(t *testing.T) {
	for method, read := range reads(t) {
		for _, name := range read.names {
			for _, errno := range []syscall.Errno{syscall.EIO, syscall.EACCES, syscall.EMFILE} {
				err := read.ask(sysfs.New(failing{load(t, read.host).Sys(), name, errno}))
				if !errors.Is(err, errno) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s, %s fails with %v: error %v", method, name, errno, err)
				}
			}
		}
	}
}

func TestReadThatSaysThereIsNoneIsNoError(t *testing.T) {
	for method, read := range reads(t) {
		for _, name := range read.names {
			for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ENODEV, syscall.EINVAL, syscall.EOPNOTSUPP} {
				if err := read.ask(sysfs.New(failing{load(t, read.host).Sys(), name, errno})); err != nil {
					t.Errorf("%s, %s fails with %v: error %v", method, name, errno, err)
				}
			}
		}
	}
}

func TestAbsentIsNoError(t *testing.T) {
	for err, want := range map[error]bool{
		nil: false, syscall.ENOENT: true, syscall.ENOTDIR: true, syscall.ENODEV: true, syscall.EINVAL: true, syscall.EOPNOTSUPP: true,
		fs.ErrNotExist: true, syscall.EIO: false, syscall.EACCES: false, syscall.EPERM: false, syscall.ELOOP: false,
		errors.New("made up"): false,
	} {
		if got := sysfs.Absent(err); got != want {
			t.Errorf("%v: %v", err, got)
		}
		if err == nil {
			continue
		}
		if got := sysfs.Absent(&fs.PathError{Op: "read", Path: "x", Err: err}); got != want {
			t.Errorf("wrapped %v: %v", err, got)
		}
	}
}

func TestAttributeThatIsNoNumberIsAnErrorThatNamesIt(t *testing.T) {
	h := made(t, `
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/pci0000:00/0000:01:00.0 --
-- sys/devices/pci0000:00/0000:01:00.0/sriov_offset --
many
-- sys/devices/pci0000:00/0000:01:00.0/sriov_numvfs --

-- sys/bus/auxiliary/devices/x.sf.1 -> ../../../devices/pci0000:00/0000:01:00.0/x.sf.1 --
-- sys/devices/pci0000:00/0000:01:00.0/x.sf.1/sfnum --
0x1
`)
	each(t, h, func(t *testing.T, sys *sysfs.FS) {
		_, _, offset := sys.VFIndex(addr(t, "0000:01:00.0"), addr(t, "0000:01:00.1"))
		_, _, sfnum := sys.Auxiliary("x.sf.1")
		_, numvfs := sys.VDPAOn(function(t, sys, "0000:01:00.0"))
		for name, err := range map[string]error{"sriov_offset": offset, "x.sf.1/sfnum": sfnum, "sriov_numvfs": numvfs} {
			if err == nil || !strings.Contains(err.Error(), path.Join("/sys/devices/pci0000:00/0000:01:00.0", name)) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
}
