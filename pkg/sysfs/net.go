package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"syscall"
)

// Port is a network interface right below a PCI function, net/<name>, in the network
// namespace that the sysfs was mounted in.
type Port struct {
	Name     string
	Index    int    // ifindex
	DevPort  int    // dev_port: which port of the function it is, from 0; 0 also where the driver does not say (Linux 3.15)
	PortName string // phys_port_name: "p0", "pf0vf3"; "" = the driver tells none
}

// maxPorts bounds Ports: a PF in switchdev mode has one for each of its VFs.
const maxPorts = 8

// Ports returns up to eight of a function's network interfaces, in no order.
func (f *FS) Ports(fn Function) ([]Port, error) { return f.ports(fn, maxPorts) }

// AllPorts is Ports without that limit: with 1024 VFs it takes at least 10 ms.
func (f *FS) AllPorts(fn Function) ([]Port, error) { return f.ports(fn, -1) }

func (f *FS) ports(fn Function, limit int) ([]Port, error) {
	net := path.Join(fn.dir, "net")
	dir, ok, err := known(f.fsys.Open(net))
	if !ok {
		return nil, err
	}
	defer dir.Close()
	list, ok := dir.(fs.ReadDirFile)
	if !ok {
		return nil, fmt.Errorf("/sys/%s: not a directory", net)
	}
	entries, err := list.ReadDir(limit)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var ports []Port
	for _, e := range entries {
		p, ok, err := f.port(path.Join(net, e.Name()))
		if err != nil {
			return nil, err
		}
		if ok {
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// PortsOf returns the network interfaces of a device on any bus; of a function that
// virtio-pci drives, those of its virtio device. The limit of [FS.Ports] does not hold.
func (f *FS) PortsOf(bus, name string) ([]Port, error) {
	dir, ok, err := f.device(bus, name)
	if !ok {
		return nil, err
	}
	driver, _, err := f.linkBase(path.Join(dir, "driver"))
	if err != nil || driver != "virtio-pci" {
		return f.ports(Function{dir: dir}, -1)
	}
	children, err := f.dirs(dir)
	for _, virtio := range onlyVirtio(children) {
		return f.ports(Function{dir: path.Join(dir, virtio)}, -1)
	}
	return nil, err
}

// Netdev returns the interface of that name with the device that it is of; ok is false if
// there is no such interface.
func (f *FS) Netdev(name string) (n Netdev, ok bool, err error) {
	if ok, err = f.exists("class/net", name); !ok {
		return Netdev{}, false, err
	}
	n.Name = name
	if n.Bus, n.Device, err = f.parent("class/net/" + name); err != nil || n.Device == "" {
		return n, err == nil, err
	}
	n.DevPort, _, err = f.number("class/net/" + name + "/dev_port")
	return n, err == nil, err
}

// HasDevice reports whether there is a device of that name on a bus.
func (f *FS) HasDevice(bus, name string) (bool, error) {
	_, ok, err := f.device(bus, name)
	return ok, err
}

// Inode returns the number of a device's directory, which tells the device from one that
// was in its place before, in the same boot (fs/kernfs/dir.c, __kernfs_new_node); 0 =
// unknown, as on a captured host.
func (f *FS) Inode(bus, name string) (uint64, error) {
	dir, ok, err := f.device(bus, name)
	if !ok {
		return 0, err
	}
	return f.inode(dir)
}

func (f *FS) inode(dir string) (uint64, error) {
	info, ok, err := known(fs.Stat(f.fsys, dir))
	if !ok {
		return 0, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino, nil
	}
	return 0, nil
}

// port reads an interface; ok is false when it has gone meanwhile.
func (f *FS) port(dir string) (p Port, ok bool, err error) {
	p.Name = path.Base(dir)
	if p.Index, ok, err = f.number(path.Join(dir, "ifindex")); !ok {
		return Port{}, false, err
	}
	if p.DevPort, _, err = f.number(path.Join(dir, "dev_port")); err != nil {
		return Port{}, false, err
	}
	p.PortName, _, err = f.text(path.Join(dir, "phys_port_name"))
	return p, err == nil, err
}

// Medium is what an interface, /sys/class/net/<name>, runs on.
type Medium struct {
	Type  *int // type: ARPHRD_ETHER (1), ARPHRD_INFINIBAND (32)
	Speed *int // speed, Mbit/s; nil = unknown, as without carrier
}

// Medium reads the medium of an interface; one that is gone has no values.
func (f *FS) Medium(name string) (m Medium, err error) {
	if !isName(name) {
		return Medium{}, nil
	}
	for file, to := range map[string]**int{"type": &m.Type, "speed": &m.Speed} {
		n, ok, err := f.number(path.Join("class/net", name, file))
		if err != nil {
			return Medium{}, err
		}
		if ok && n >= 0 { // speed is -1 where the driver does not know
			*to = &n
		}
	}
	return m, nil
}
