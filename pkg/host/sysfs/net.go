package sysfs

import (
	"math"
	"path"
)

// Port is a network interface directly below a device, net/<name>.
type Port struct {
	Name     string
	Index    int    // ifindex
	DevPort  int    // dev_port (Linux 3.15): number of the function's port, from 0; also 0 if the driver does not set it
	PortName string // phys_port_name: "p0", "pf0vf3"; "" = not set by the driver
}

// Limits of [FS.Ports]. A PF in switchdev mode has an interface for each of its VFs.
const (
	FewPorts = 8
	AllPorts = math.MaxInt // with 1024 VFs it takes at least 10 ms
)

// Ports returns the network interfaces of a device in this network namespace, but at most a number of them. For a function
// driven by virtio-pci they are the interfaces of its virtio device. Do not conclude from the list that there is no other
// interface.
func (f *FS) Ports(bus, device string, most int) (ports []Port, err error) {
	in := f.device(bus, device).ofPorts()
	names := in.names("net")
	for _, name := range names[:min(most, len(names))] {
		p, d := Port{Name: name}, f.in(path.Join(in.at, "net", name))
		var there bool
		if p.Index, there = d.number("ifindex"); there { // otherwise it has disappeared
			p.PortName = d.text("phys_port_name")
			p.DevPort, _ = d.number("dev_port")
			ports = append(ports, p)
		}
		if d.err != nil {
			return nil, d.err
		}
	}
	return ports, in.err
}

// HasPorts reports whether a device has network interfaces in any network namespace. It checks only whether the
// directory net exists, because net lists only the interfaces of the namespace in which sysfs was mounted.
func (f *FS) HasPorts(bus, name string) (bool, error) {
	d := f.device(bus, name).ofPorts()
	return d.has("net"), d.err
}

// ofPorts moves from a device to the directory that has its net.
func (d *dir) ofPorts() *dir {
	if d.link("driver") == "virtio-pci" {
		if virtio := onlyVirtio(d.dirs("")); len(virtio) > 0 {
			d.at = path.Join(d.at, virtio[0])
		}
	}
	return d
}

// Netdev is a network interface, /sys/class/net/<name>.
type Netdev struct {
	Name    string
	Bus     string // device/subsystem: "pci", "virtio", "auxiliary", "netdevsim"; "" without a device
	Device  string // device: "0000:01:00.2", "virtio2", "mlx5_core.sf.4"
	DevPort int    // dev_port, see [Port]
}

// Netdevs returns the network interfaces, sorted by name as in [ByNumber].
func (f *FS) Netdevs() ([]Netdev, error) { return each(f, "class/net", f.Netdev) }

// Netdev returns the interface with the given name and its device. ok is false if the interface does not exist.
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

// Inode returns the inode number of a device's directory. It differs for a new device with the same name in the
// same boot (fs/kernfs/dir.c, __kernfs_new_node). The number is 0 if it is unknown, as on a captured host. ok is false if
// the bus has no device with this name.
func (f *FS) Inode(bus, name string) (inode uint64, ok bool, err error) {
	d := f.device(bus, name)
	return d.inode(), !d.gone, d.err
}

// Medium is the link type and speed of an interface, /sys/class/net/<name>.
type Medium struct {
	Type  *int // type: ARPHRD_ETHER (1), ARPHRD_INFINIBAND (32)
	Speed *int // speed in Mbit/s; nil = unknown, for example without carrier
}

// Medium reads the medium of an interface. It returns no values if the interface does not exist.
func (f *FS) Medium(name string) (m Medium, err error) {
	if !isName(name) {
		return Medium{}, nil
	}
	d := f.in(path.Join("class/net", name))
	for file, to := range map[string]**int{"type": &m.Type, "speed": &m.Speed} {
		if n, ok := d.number(file); ok && n >= 0 { // an unknown speed is -1
			*to = &n
		}
	}
	return m, d.err
}
