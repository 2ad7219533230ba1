package restore_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/dra/devices/restore/restoretest"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/process"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

// A line has a driver and changes of the host igb-sriov: "link PATH TARGET", "write PATH TEXT", "remove PATH".
func TestDriverIsRefusedWithoutIsolationOfFunction(t *testing.T) {
	goldentest.Lines(t, "testdata/drivers.txt", func(line string) []string {
		dir := t.TempDir()
		k := kernel(t, dir, "igb-sriov")
		part := strings.Split(line, "; ")
		for _, change := range part[1:] {
			word := append(strings.Fields(change), "")
			switch path := filepath.Join(dir, "kernel/sys", word[1]); word[0] {
			case "link":
				difftest.Must(t, os.Symlink(word[2], path))
			case "write":
				difftest.Must(t, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(word[2]+"\n"), 0o644))
			case "remove":
				difftest.Must(t, os.Remove(path))
			}
		}
		if err := k.Host().MayBind(look(t, k.Host(), function(vf, "eth2")), part[0]); err != nil {
			return []string{err.Error()}
		}
		return []string{"allowed"}
	})
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

// holding is a kernel in which a process has the function open.
type holding struct{ *restoretest.Kernel }

func (holding) Holders([]string) ([]process.Holder, error) {
	return []process.Holder{{PID: 4711, Command: "qemu"}}, nil
}

// busy is a kernel in which a process of a pod has open what has a device node.
type busy struct{ *restoretest.Kernel }

func (busy) Holders(numbers []string) (holders []process.Holder, err error) {
	if len(numbers) > 0 {
		holders = append(holders, process.Holder{PID: 4711, Command: "dpdk", Pod: true})
	}
	return holders, nil
}

// A device whose device nodes cannot be read may be open.
func TestOpenDeviceIsNotRestoredAfterFailedRead(t *testing.T) {
	for host, device := range map[string]hostdev.Ref{
		"mlx5-legacy":    function("0000:3b:00.2", "ens1f0v0"),
		"mlx5-switchdev": {Kind: hostdev.SF, Aux: "mlx5_core.sf.4", IfName: "enp3s0f0s88"},
		"devinfo-try":    {Kind: hostdev.VDPA, VDPA: "vpvdpa0"},
	} {
		k := kernel(t, t.TempDir(), host)
		f, unknown := look(t, k.Host(), device), 0
		capturetest.EachFailure(k.Sys().Files(), func(sys fs.FS, failed *string) {
			h := restore.New(sysfs.New(sys), k.Write, busy{k})
			_, err := h.Inode(f)
			if err != nil {
				unknown++
			}
			_, err = h.Restore(f)
			if *failed == "" {
				difftest.Says(t, err, "has its device node open")
			} else if err == nil {
				t.Errorf("%s: %s fails, and the device counts as unused", host, *failed)
			}
		})
		if unknown == 0 {
			t.Errorf("%s: no failure makes its state unknown", host)
		}
	}
}

// blind is a kernel that does not say who has a device open.
type blind struct{ *restoretest.Kernel }

func (blind) Holders([]string) ([]process.Holder, error) { return nil, errKilled }

// What cannot be read of a device may differ from its snapshot, and what refers to it may be more.
func TestEachFailedReadFails(t *testing.T) {
	k, h, f := igb(t)
	_, err := restore.New(k.Sys(), k.Write, blind{k}).Restore(f)
	difftest.Is(t, err, errKilled)
	for name, read := range map[string]func(h *restore.Devices) error{
		"Look":    func(h *restore.Devices) error { _, err := h.Look(function(vf, "eth2")); return err },
		"Restore": func(h *restore.Devices) error { _, err := h.Restore(f); return err },
		"Alone":   func(h *restore.Devices) error { return h.Alone(f) },
	} {
		for call, failed := 0, true; failed; call++ {
			left := call
			k.Before = func() error {
				if left--; left == -1 {
					return errKilled
				}
				return nil
			}
			err := read(h)
			if failed = left < 0; errors.Is(err, errKilled) != failed {
				t.Errorf("%s: access %d fails: %v", name, call, err)
			}
		}
	}
	k.Before = nil
	second := function("0000:01:10.2", "eth3")
	f = look(t, h, second)
	f.Reset = restore.Always
	capturetest.EachFailure(k.Sys().Files(), func(sys fs.FS, failed *string) {
		h := restore.New(sysfs.New(sys), func(string, string) error { return errKilled }, k)
		if _, err := h.Restore(f); err == nil {
			t.Errorf("%s fails, and the reset is left out", *failed)
		}
		got, err := h.Look(second)
		if got.Reset = f.Reset; err == nil && !reflect.DeepEqual(got, f) {
			t.Errorf("%s fails, and Look says %+v", *failed, got)
		}
	})
}

// VFIO releases a function when no process has it open. The kernel waits for that, but the driver must not. During
// the wait the function has no driver (drivers/base/dd.c, __device_release_driver), and other users of the device's
// lock wait too: reads and writes of driver_override, and probing.
func TestBlockedUnbindDoesNotBlockOtherDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := kernel(t, t.TempDir(), "igb-sriov")
		f := look(t, k.Host(), function(vf, "eth2"))
		difftest.Must(t, k.Host().Bind(f, "vfio-pci"))
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
		}, holding{k})
		held := func(what string, err error, began time.Time) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "a process still has it open: [process 4711 (qemu)]") || time.Since(began) > time.Minute {
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
	difftest.Must(t, err)
}
