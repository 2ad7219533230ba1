package sysfs

// RDMA lists the device's RDMA devices, infiniband/*, in numerical order. None
// may mean that they were moved to another network namespace.
func (f *FS) RDMA(d Device) ([]string, error) {
	in := f.in(d.at())
	return in.names("infiniband"), in.err
}

// RDMANodes lists the nodes below /dev/infiniband of the device's RDMA devices: uverbsN,
// then issmN and umadN, each in numerical order. Unlike infiniband/ they do not depend on
// the network namespace.
func (f *FS) RDMANodes(d Device) (nodes []string, err error) {
	in := f.in(d.at())
	return append(in.nodes("infiniband_verbs"), in.nodes("infiniband_mad")...), in.err
}

// RDMA is what a device on a bus has for RDMA.
type RDMA struct {
	Devices   []string // infiniband/*, as [FS.RDMA] lists them
	Nodes     []string // see [FS.RDMANodes]
	LinkLayer string   // ports/1/link_layer of the first: "InfiniBand", "Ethernet"; "" = unknown
	// Netdev says that the device has a network interface, in whatever network namespace:
	// net/ is there for as long (drivers/base/core.c, cleanup_glue_dir), and empty in all
	// others.
	Netdev bool
}

// RDMABelow returns what a device on a bus has for RDMA; nothing of one that is not there.
func (f *FS) RDMABelow(bus, name string) (r RDMA, err error) {
	d := f.device(bus, name)
	r.Devices = d.names("infiniband")
	r.Nodes = append(d.nodes("infiniband_verbs"), d.nodes("infiniband_mad")...)
	if len(r.Devices) > 0 {
		r.LinkLayer = d.text("infiniband/" + r.Devices[0] + "/ports/1/link_layer")
		r.Netdev = d.has("net")
	}
	return r, d.err
}

// IsRDMAShared reports whether the RDMA devices that are seen here are open to every network
// namespace (rdma system show: netns shared). A kernel without ib_core's netns_mode knows no
// other way.
func (f *FS) IsRDMAShared() (bool, error) {
	d := f.in("module/ib_core/parameters")
	return d.text("netns_mode") != "N", d.err
}
