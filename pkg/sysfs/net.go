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
func (f *FS) Ports(fn Function) ([]Port, error) { return f.ports(fn.dir, maxPorts) }

func (f *FS) ports(at string, limit int) ([]Port, error) {
	net := path.Join(at, "net")
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
// virtio-pci drives, those of its virtio device. The limit of [FS.Ports] does not hold: with
// 1024 VFs it takes at least 10 ms.
func (f *FS) PortsOf(bus, name string) ([]Port, error) {
	d := f.portsDir(bus, name)
	if d.gone || d.err != nil {
		return nil, d.err
	}
	return f.ports(d.at, -1)
}

// HasPorts reports whether a device has network interfaces, in whatever network namespace: sysfs
// leaves the directory net, and shows only those of its own namespace in there.
func (f *FS) HasPorts(bus, name string) (bool, error) {
	d := f.portsDir(bus, name)
	return d.has("net"), d.err
}

// portsDir returns the directory that a device has its interfaces in.
func (f *FS) portsDir(bus, name string) *dir {
	d := f.device(bus, name)
	if d.link("driver") == "virtio-pci" {
		if virtio := onlyVirtio(d.dirs("")); len(virtio) > 0 {
			d.at = path.Join(d.at, virtio[0])
		}
	}
	return d
}

// Netdev returns the interface of that name with the device that it is of; ok is false if
// there is no such interface.
func (f *FS) Netdev(name string) (n Netdev, ok bool, err error) {
	d := f.in(path.Join("class/net", name))
	if !isName(name) || !d.has("") {
		return n, false, d.err
	}
	n.Name = name
	if n.Bus, n.Device = d.parent(); n.Device != "" {
		n.DevPort, _ = d.number("dev_port")
	}
	return n, d.err == nil, d.err
}

// HasDevice reports whether there is a device of that name on a bus.
func (f *FS) HasDevice(bus, name string) (bool, error) {
	d := f.device(bus, name)
	return !d.gone, d.err
}

// Inode returns the number of a device's directory, which tells the device from one that
// was in its place before, in the same boot (fs/kernfs/dir.c, __kernfs_new_node); 0 =
// unknown, as on a captured host.
func (f *FS) Inode(bus, name string) (uint64, error) {
	d := f.device(bus, name)
	return d.inode(), d.err
}

func (d *dir) inode() uint64 {
	if info, ok := read(d, fs.Stat, ""); ok {
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			return stat.Ino
		}
	}
	return 0
}

// port reads an interface; ok is false when it has gone meanwhile.
func (f *FS) port(at string) (p Port, ok bool, err error) {
	d := f.in(at)
	if p.Index, ok = d.number("ifindex"); !ok {
		return p, false, d.err
	}
	p.Name, p.PortName = path.Base(at), d.text("phys_port_name")
	p.DevPort, _ = d.number("dev_port")
	return p, d.err == nil, d.err
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
	d := f.in(path.Join("class/net", name))
	for file, to := range map[string]**int{"type": &m.Type, "speed": &m.Speed} {
		if n, ok := d.number(file); ok && n >= 0 { // speed is -1 where the driver does not know
			*to = &n
		}
	}
	return m, d.err
}
