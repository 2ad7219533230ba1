package sysfs

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// Override returns the name of the only driver that the kernel may bind to a function,
// driver_override (Linux 3.16); "" = any that knows it.
func (f *FS) Override(fn Function) (string, error) {
	name, _, err := f.text(path.Join(fn.dir, "driver_override"))
	if name == "(null)" { // as the kernel prints none
		name = ""
	}
	return name, err
}

// HasDriver reports whether the kernel has a driver of that name for PCI functions.
func (f *FS) HasDriver(name string) (bool, error) {
	return f.exists("bus/pci/drivers", name)
}

func (f *FS) exists(dir, name string) (bool, error) {
	if !isName(name) {
		return false, nil
	}
	_, ok, err := known(fs.Lstat(f.fsys, path.Join(dir, name)))
	return ok, err
}

// IOMMUGroup lists the functions that an IOMMU can isolate only together, by address, the
// given one among them; none if no IOMMU isolates it.
func (f *FS) IOMMUGroup(fn Function) (group string, members []Member, err error) {
	group, ok, err := f.linkBase(path.Join(fn.dir, "iommu_group"))
	if !ok {
		return "", nil, err
	}
	names, err := f.names(path.Join("kernel/iommu_groups", group, "devices"))
	if err != nil {
		return "", nil, err
	}
	for _, name := range names {
		m := Member{Name: name}
		if a, err := pci.Parse(name); err == nil {
			if m, err = f.member(a); err != nil {
				return "", nil, err
			}
		}
		members = append(members, m)
	}
	return group, members, nil
}

// Member is a device of an IOMMU group.
type Member struct {
	Name   string // "0000:01:00.2"
	Driver string // "" = unbound
	Bridge bool   // a PCI bridge, class 06xxxx
}

func (f *FS) member(a pci.Address) (Member, error) {
	m := Member{Name: a.String()}
	fn, ok, err := f.PCI(a)
	if !ok {
		return m, err
	}
	class, _, err := f.text(path.Join(fn.dir, "class"))
	m.Driver, m.Bridge = fn.Driver, strings.HasPrefix(class, "0x06")
	return m, err
}

// WithoutIOMMU reports whether VFIO takes functions that no IOMMU isolates
// (/sys/module/vfio/parameters/enable_unsafe_noiommu_mode).
func (f *FS) WithoutIOMMU() (bool, error) {
	text, _, err := f.text("module/vfio/parameters/enable_unsafe_noiommu_mode")
	return text == "Y", err
}

// Writer writes attributes of the sysfs mounted at dir, by their names below it. The
// kernel's answer is the error.
func Writer(dir string) func(name, text string) error {
	return func(name, text string) error {
		file, err := os.OpenFile(filepath.Join(dir, filepath.FromSlash(name)), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteString(text)
		if closed := file.Close(); err == nil {
			err = closed
		}
		return err
	}
}
