package sysfs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"reflect"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/sysfs"
)

// scratch is where captured hosts are unpacked, each once.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sysfs")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return m.Run()
}

// A host is a captured or made up one, in both of its forms.
type host struct {
	*hosttxt.Host
	dir string // "" = not unpacked yet
}

var hosts = map[string]*host{} // by the text, or the name of a capture

func load(t *testing.T, name string) *host {
	t.Helper()
	return known(t, name, func() (*hosttxt.Host, error) { return hosttxt.Load("../../testdata/hosts/" + name + ".txtar") })
}

func made(t *testing.T, text string) *host {
	t.Helper()
	return known(t, text, func() (*hosttxt.Host, error) { return hosttxt.Parse([]byte("made up\n" + text)) })
}

func known(t *testing.T, name string, read func() (*hosttxt.Host, error)) *host {
	t.Helper()
	if hosts[name] == nil {
		h, err := read()
		if err != nil {
			t.Fatal(err)
		}
		hosts[name] = &host{Host: h}
	}
	return hosts[name]
}

// each runs f on the host twice: on its text, and on directories and links on the
// disk, which Open reads as it reads /sys.
func each(t *testing.T, h *host, f func(t *testing.T, sys *sysfs.FS)) {
	t.Helper()
	t.Run("text", func(t *testing.T) { f(t, sysfs.New(h.Sys())) })
	t.Run("disk", func(t *testing.T) {
		if h.dir == "" {
			dir, err := os.MkdirTemp(scratch, "")
			if err != nil {
				t.Fatal(err)
			}
			if err := h.Unpack(dir); err != nil {
				t.Fatal(err)
			}
			h.dir = dir
		}
		sys, err := sysfs.Open(h.dir)
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
