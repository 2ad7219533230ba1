package restore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

func TestDriverIsRefusedWithoutIsolationOfFunction(t *testing.T) {
	const inGroup = "sys/kernel/iommu_groups/12/devices/"
	for name, test := range map[string]struct {
		change func(dir string) error
		driver string
		want   []string // parts of the error; nil = no error
	}{
		"alone":            {nil, "vfio-pci", nil},
		"no such driver":   {nil, "uio", []string{"driver: uio", "load the module uio"}},
		"with another one": {func(dir string) error { return os.Symlink("x", filepath.Join(dir, inGroup, "0000:01:10.2")) }, "vfio-pci", []string{"IOMMU group 12", "0000:01:10.2", `"igbvf"`, "bind them to vfio-pci"}},
		"with one on it":   {func(dir string) error { return os.Symlink("x", filepath.Join(dir, inGroup, "0000:01:10.6")) }, "vfio-pci", nil},
		"with a bridge": {func(dir string) error {
			bridge := filepath.Join(dir, "sys/devices/pci0000:00/0000:00:05.0")
			return errors.Join(os.Symlink("x", filepath.Join(dir, inGroup, "0000:00:05.0")), os.WriteFile(filepath.Join(bridge, "class"), []byte("0x060400\n"), 0o644),
				os.Symlink("../../../devices/pci0000:00/0000:00:05.0", filepath.Join(dir, "sys/bus/pci/devices/0000:00:05.0")))
		}, "vfio-pci", nil},
		"without IOMMU": {func(dir string) error {
			return os.Remove(filepath.Join(dir, "sys/bus/pci/devices", vf, "iommu_group"))
		}, "vfio-pci", []string{"no IOMMU isolates " + vf, "intel_iommu=on"}},
		"which is allowed": {func(dir string) error {
			parameters := filepath.Join(dir, "sys/module/vfio/parameters")
			return errors.Join(os.Remove(filepath.Join(dir, "sys/bus/pci/devices", vf, "iommu_group")), os.MkdirAll(parameters, 0o755),
				os.WriteFile(filepath.Join(parameters, "enable_unsafe_noiommu_mode"), []byte("Y\n"), 0o644))
		}, "vfio-pci", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := kernel(t, dir, "igb-sriov")
			if test.change != nil {
				must(t, test.change(filepath.Join(dir, "kernel")))
			}
			err := k.Host().MayBind(look(t, k.Host(), function(vf, "eth2")), test.driver)
			if (err != nil) != (test.want != nil) {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				difftest.Says(t, err, test.want...)
			}
		})
	}
}

// locked is a /sys in which reading driver_override waits for the lock of the device.
type locked struct {
	fs.ReadLinkFS
	wait func()
}

func (l locked) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, "/driver_override") {
		l.wait()
	}
	return l.ReadLinkFS.Open(name)
}

// VFIO releases a function when no process has it open. The kernel waits for that, but the driver must not. During
// the wait the function has no driver (drivers/base/dd.c, __device_release_driver), and other users of the device's
// lock wait too: reads and writes of driver_override, and probing.
func TestBlockedUnbindDoesNotBlockOtherDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kernel(t, t.TempDir(), "igb-sriov")
		f := look(t, k.Host(), function(vf, "eth2"))
		must(t, k.Host().Bind(f, "vfio-pci"))
		var calls atomic.Int32
		closed := make(chan struct{})
		wait := func() {
			if calls.Load() > 0 {
				<-closed
			}
		}
		sys := sysfs.New(locked{k.Sys().Files().(fs.ReadLinkFS), wait})
		h := restore.New(sys, func(name, text string) error {
			wait()
			err := k.Write(name, text)
			if strings.HasSuffix(name, "/unbind") {
				calls.Add(1)
				wait()
			}
			return err
		}, k)
		held := func(what string, err error, began time.Time) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "a process still has it open") || time.Since(began) > time.Minute {
				t.Errorf("%s: got %v after %v", what, err, time.Since(began))
			}
		}
		for range 3 {
			began := time.Now()
			_, err := h.Restore(f)
			held("restore", err, began)
			difftest.Equal(t, difftest.As[*restore.Mismatch](t, err).Settings, []string{restore.Driver})
			_, err = h.Look(function(vf, "eth2"))
			held("look", err, began)
			held("bind", h.Bind(f, "vfio-pci"), began)
		}
		close(closed)
		if did, err := h.Restore(f); err != nil || calls.Load() != 1 {
			t.Errorf("%q, %v, %d calls", did, err, calls.Load())
		}
		difftest.Equal(t, look(t, h, function(vf, "eth2")), f)
	})
}

func TestBindFailsIfKernelBindsOtherDriver(t *testing.T) {
	_, h, f := igb(t)
	difftest.Says(t, h.Bind(f, "uio"), fmt.Sprintf(`%s: bound to driver "", not to "uio"`, vf))
	_, err := h.Restore(f)
	must(t, err)
}
