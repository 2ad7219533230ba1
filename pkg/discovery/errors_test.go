package discovery_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// failing cannot read one name.
type failing struct {
	fs.FS
	name string
}

func (f failing) check(op, name string) error {
	if name == f.name {
		return &fs.PathError{Op: op, Path: name, Err: syscall.EIO}
	}
	return nil
}

func (f failing) Open(name string) (fs.File, error) {
	if err := f.check("open", name); err != nil {
		return nil, err
	}
	return f.FS.Open(name)
}

func (f failing) ReadLink(name string) (string, error) {
	if err := f.check("readlink", name); err != nil {
		return "", err
	}
	return fs.ReadLink(f.FS, name)
}

func (f failing) Stat(name string) (fs.FileInfo, error) {
	if err := f.check("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(f.FS, name)
}

func (f failing) Lstat(name string) (fs.FileInfo, error) { return fs.Lstat(f.FS, name) }

const (
	pf65 = "devices/pci0000:64/0000:64:02.0/0000:65:00.0"
	vf65 = "devices/pci0000:64/0000:64:02.0/0000:65:00.4"
)

func TestDeviceThatCannotBeReadIsAnErrorThatNamesSourceAndDevice(t *testing.T) {
	for _, test := range []struct{ id, fails, names string }{
		{"0000:65:00.4", "bus/pci/devices/0000:65:00.4", "deviceID: 0000:65:00.4: "},
		{"0000:65:00.4", vf65 + "/driver", "deviceID: 0000:65:00.4: "},
		{"0000:65:00.4", vf65 + "/physfn", "deviceID: 0000:65:00.4: "},
		{"0000:65:00.4", vf65, "0000:65:00.4: "},
		{"0000:65:00.4", vf65 + "/vdpa4/driver", "0000:65:00.4: "},
		{"vdpa4", "bus/vdpa/devices/vdpa4", "deviceID: vdpa4: "},
		{"mlx5_core.sf.2", "bus/auxiliary/devices/mlx5_core.sf.2", "deviceID: mlx5_core.sf.2: "},
		{"mlx5_core.sf.2", pf65 + "/mlx5_core.sf.2/sfnum", "deviceID: mlx5_core.sf.2: "},
		{"mlx5_core.sf.2", pf65 + "/mlx5_core.sf.2", "mlx5_core.sf.2: "},
	} {
		f := on(t, load(t, "mlx5-vdpa"))
		f.Sys = sysfs.New(failing{f.Sys.Files(), test.fails})
		device, err := f.Find(byID(test.id))
		if !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), test.names) || device != nil {
			t.Errorf("%s, %s fails: %+v, %v", test.id, test.fails, device, err)
		}
	}
	f := onHostNetwork(t, load(t, "mlx5-vdpa"))
	f.Sys = sysfs.New(failing{f.Sys.Files(), "bus/virtio/devices/virtio7"})
	if _, err := f.Find(inPod("eth12")); !errors.Is(err, syscall.EIO) {
		t.Errorf("virtio7 fails: %v", err)
	}
}

func TestOptionalFactThatCannotBeReadIsAWarning(t *testing.T) {
	const facts = `
		pci.pci-address 0000:65:00.2 < deviceID
		pci.pf-pci-address 0000:65:00.0 < /sys/bus/pci/devices/0000:65:00.2/physfn`
	const rdma = "pci.rdma-device mlx5_2 < /sys/bus/pci/devices/0000:65:00.2/infiniband"
	const representor = "pci.representor-device eth4 < devlink ports of pci/0000:65:00.0"
	const dir = "devices/pci0000:64/0000:64:02.0/0000:65:00.2"
	for fails, want := range map[string]string{
		dir + "/infiniband": facts + "\n" + representor +
			"\nwarning: the PCI function 0000:65:00.2: RDMA devices: open " + dir + "/infiniband: input/output error",
		pf65 + "/sriov_offset": facts + "\n" + rdma +
			"\nwarning: the PCI function 0000:65:00.2: representor: open " + pf65 + "/sriov_offset: input/output error",
	} {
		f := on(t, load(t, "mlx5-vdpa"))
		f.Sys = sysfs.New(failing{f.Sys.Files(), fails})
		find(t, f, byID("0000:65:00.2"), want)
	}
	for _, s := range []switches{{switchdev: errors.New("made up")}, {representor: errors.New("made up")}} {
		f := on(t, load(t, "mlx5-vdpa"))
		f.Switches = s
		find(t, f, byID("0000:65:00.2"), facts+"\n"+rdma+"\nwarning: the PCI function 0000:65:00.2: representor: made up")
	}
	f := on(t, load(t, "mlx5-vdpa"))
	f.Switches = switches{} // switchdev, but no port is the VF's
	find(t, f, byID("0000:65:00.2"), facts+"\n"+rdma)
}

// switches are in switchdev mode and know no representor, or not even that.
type switches struct{ switchdev, representor error }

func (s switches) Switchdev(string) (bool, error) { return s.switchdev == nil, s.switchdev }

func (s switches) Representor(string, link.Flavour, int) (string, bool, error) {
	return "", false, s.representor
}

func TestNoPFHasARepresentor(t *testing.T) {
	f := on(t, load(t, "mlx5-switchdev"))
	f.Switches = asked{t}
	find(t, f, byID("0000:03:00.0"), `
		pci.pci-address 0000:03:00.0 < deviceID
		pci.rdma-device mlx5_0 < /sys/bus/pci/devices/0000:03:00.0/infiniband`)
}

// asked must not be.
type asked struct{ t *testing.T }

func (a asked) Switchdev(pf string) (bool, error) {
	a.t.Errorf("asked for the mode of %s", pf)
	return false, nil
}

func (a asked) Representor(pf string, f link.Flavour, n int) (string, bool, error) {
	a.t.Errorf("asked for representor %d.%d of %s", f, n, pf)
	return "", false, nil
}
