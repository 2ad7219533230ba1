package sysfs

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
)

// RDMA returns the names of a device's RDMA devices, sorted by [ByNumber]. They come from infiniband/*, which shows
// one network namespace in RDMA's exclusive mode. If it shows none, they come from infiniband_verbs/*/ibdev, which
// shows all (drivers/infiniband/core/uverbs_main.c, ibdev_show) but needs the module ib_uverbs. from is which of the two.
func (f *FS) RDMA(d Device) (names []string, from string, err error) {
	in := f.in(d.at())
	names, from = in.rdma()
	return names, from, in.err
}

// rdma leaves out devices without verbs if another one has them: the smi1 of a ConnectX-8 carries only the fabric's
// management (ib_uverbs_add_one in uverbs_main.c makes no uverbs of RDMA_DEVICE_TYPE_SMI).
func (d *dir) rdma() (names []string, from string) {
	here := d.names("infiniband")
	if len(here) == 1 {
		return here, "infiniband"
	}
	var verbs []string
	for _, uverbs := range d.dirs("infiniband_verbs") {
		if name := d.text("infiniband_verbs/" + uverbs + "/ibdev"); name != "" {
			verbs = append(verbs, name)
		}
	}
	slices.SortFunc(verbs, ByNumber)
	if len(here) == 0 {
		return verbs, "infiniband_verbs/*/ibdev"
	}
	both := slices.DeleteFunc(slices.Clone(here), func(name string) bool { return !slices.Contains(verbs, name) })
	if len(both) == 0 { // ib_uverbs is not loaded
		return here, "infiniband"
	}
	return both, "infiniband"
}

// RDMAPorts returns the number of ports that the RDMA devices of a device have. all is false if there may be more. RDMA
// devices in other network namespaces are counted by their device nodes: uverbsN, one for each device, and umadN, one
// for each port that has management datagrams, as all ports of InfiniBand and RoCE have.
func (f *FS) RDMAPorts(d Device) (number int, all bool, err error) {
	in := f.in(d.at())
	for _, name := range in.names("infiniband") {
		number += len(in.names("infiniband/" + name + "/ports"))
	}
	uverbs, umads := len(in.dirs("infiniband_verbs")), 0
	for _, name := range in.dirs("infiniband_mad") {
		if strings.HasPrefix(name, "umad") {
			umads++
		}
	}
	all = max(number, umads) >= max(uverbs, 1)
	return max(number, umads, uverbs), all, in.err
}

// RDMANodes returns the names below /dev/infiniband of the device nodes of a device's RDMA devices: uverbsN, then
// issmN and umadN, each sorted by N. The list does not depend on the network namespace.
func (f *FS) RDMANodes(d Device) (nodes []string, err error) {
	in := f.in(d.at())
	return append(in.nodes("infiniband_verbs"), in.nodes("infiniband_mad")...), in.err
}

// RDMA describes the RDMA devices of a device on a bus.
type RDMA struct {
	Devices   []string // those of this network namespace, see [FS.RDMA]
	Nodes     []string // device nodes, see [FS.RDMANodes]
	LinkLayer string   // ports/1/link_layer of the first device: "InfiniBand", "Ethernet"; "" = unknown
	GUID      string   // node_guid of the first device: "0216:3eff:fe00:0001"; "" = unknown
	// Netdev is true if the device has a network interface in any network namespace. The directory net exists
	// as long as there is one (drivers/base/core.c, cleanup_glue_dir).
	Netdev bool
}

// RDMABelow returns the RDMA devices of a device on a bus. The result is empty if the device does not exist.
func (f *FS) RDMABelow(bus, name string) (r RDMA, err error) {
	d := f.device(bus, name)
	if r.Devices = d.names("infiniband"); len(r.Devices) > 0 {
		r.Devices, _ = d.rdma()
	}
	r.Nodes = append(d.nodes("infiniband_verbs"), d.nodes("infiniband_mad")...)
	if len(r.Devices) > 0 {
		r.LinkLayer = d.text("infiniband/" + r.Devices[0] + "/ports/1/link_layer")
		r.GUID = d.text("infiniband/" + r.Devices[0] + "/node_guid")
		r.Netdev = d.has("net")
	}
	return r, d.err
}

// RDMADevice is an RDMA device, /sys/class/infiniband/<name>.
type RDMADevice struct {
	Name   string
	Bus    string // device/subsystem: "pci", "auxiliary"; "" for a software device
	Device string // device: "0000:01:00.2"
	// Netdev is the interface of the first port, ports/1/gid_attrs/ndevs/0; "" = none. The interface may be in any
	// network namespace, and the name is that in its own (drivers/infiniband/core/sysfs.c, print_ndev).
	Netdev string
}

// RDMADevices returns the RDMA devices, sorted by name as in [ByNumber].
func (f *FS) RDMADevices() ([]RDMADevice, error) {
	return each(f, "class/infiniband", func(name string) (r RDMADevice, ok bool, err error) {
		d := f.in("class/infiniband/" + name)
		r.Name, r.Netdev = name, d.text("ports/1/gid_attrs/ndevs/0")
		r.Bus, r.Device = d.parent()
		return r, true, d.err
	})
}

// Apart is an RDMA device of an interface that is not below the same device as the interface.
type Apart struct {
	RDMADevice          // Device is a PCI function without an interface; "" = /sys does not show it
	GUID       string   // node_guid
	Nodes      []string // see [FS.RDMANodes]
}

// RDMAApart returns the RDMA devices that the kernel binds to an interface of another PCI function, sorted by name as in
// [ByNumber]. erdma finds the interface by its hardware address (drivers/infiniband/hw/erdma/erdma_main.c,
// erdma_enum_and_get_netdev), and vmw_pvrdma takes that of function 0 (hw/vmw_pvrdma/pvrdma_main.c, pvrdma_pci_probe).
// RDMAApart looks at all RDMA devices of the node.
func (f *FS) RDMAApart() (list []Apart, err error) {
	all, err := f.RDMADevices()
	for _, r := range all {
		if a, ok, err := r.apart(f); err != nil {
			return nil, err
		} else if ok {
			list = append(list, a)
		}
	}
	return list, err
}

func (r RDMADevice) apart(f *FS) (a Apart, ok bool, err error) {
	d, verbs := f.in("class/infiniband/"+r.Name), "class/infiniband_verbs"
	switch {
	case r.Netdev == "":
		return a, false, nil
	case r.Bus == "pci":
		if own, err := f.HasPorts(r.Bus, r.Device); own || err != nil {
			return a, false, err
		}
		verbs = "bus/pci/devices/" + r.Device + "/infiniband_verbs"
	case r.Device != "" || !strings.HasPrefix(d.text("node_desc"), ErdmaDesc):
		return a, false, d.err
	}
	a = Apart{RDMADevice: r, GUID: d.text("node_guid")}
	in := f.in(verbs)
	for _, name := range in.names("") {
		if in.text(name+"/ibdev") == r.Name && in.has(name+"/dev") {
			a.Nodes = append(a.Nodes, name)
		}
	}
	return a, true, cmp.Or(d.err, in.err)
}

// ErdmaDesc begins the node_desc of erdma, which Linux registers without a parent, like the software devices rxe and siw.
const ErdmaDesc = "Elastic RDMA"

// BoundTo reports whether the RDMA device is bound to an interface with the given name and hardware addresses. Another
// interface may have that name in another network namespace. proven is true if the GUID is made of an address, as erdma
// does; if it is made of another one, the RDMA device is bound to another interface.
func (a Apart) BoundTo(name string, macs ...net.HardwareAddr) (bound, proven bool) {
	digits := strings.ReplaceAll(a.GUID, ":", "")
	proven = a.Netdev == name && slices.ContainsFunc(macs, func(m net.HardwareAddr) bool {
		return len(m) == 6 && digits == fmt.Sprintf("%02x%xfffe%x", m[0]^2, []byte(m[1:3]), []byte(m[3:])) // modified EUI-64
	})
	ofMAC := len(digits) == 16 && digits[6:10] == "fffe"
	return proven || a.Netdev == name && !ofMAC, proven
}

// IsRDMAShared reports whether the visible RDMA devices are open to every network namespace (rdma system show:
// netns shared). Kernels without ib_core's netns_mode always share them.
func (f *FS) IsRDMAShared() (bool, error) {
	d := f.in("module/ib_core/parameters")
	return d.text("netns_mode") != "N", d.err
}
