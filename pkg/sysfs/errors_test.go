package sysfs_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

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
		"IDs": {"igb-sriov", []string{"bus/pci/devices/0000:01:00.0", igb + "/vendor", igb + "/device"}, func(sys *sysfs.FS) error {
			_, _, err := sys.IDs(addr(t, "0000:01:00.0"))
			return err
		}},
		"Medium": {"igb-sriov", []string{"class/net/eth0/type", "class/net/eth0/speed"}, func(sys *sysfs.FS) error {
			_, err := sys.Medium("eth0")
			return err
		}},
		"RDMA": {"mlx5-vdpa", []string{cx6 + "/infiniband"}, func(sys *sysfs.FS) error {
			_, err := sys.RDMA(function(t, sys, "0000:65:00.0"))
			return err
		}},
		"Ports": {"igb-sriov", []string{igb + "/net", igb + "/net/eth0/ifindex", igb + "/net/eth0/dev_port", igb + "/net/eth0/phys_port_name"}, func(sys *sysfs.FS) error {
			_, err := sys.Ports(function(t, sys, "0000:01:00.0"))
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
		"Virtio": {"vdpa-sim", []string{"bus/virtio/devices/virtio4", "bus/vdpa/devices/vdpa1"}, func(sys *sysfs.FS) error {
			_, _, err := sys.Virtio("virtio4")
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
