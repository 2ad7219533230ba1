package sysfs

// RDMA returns the names of a device's RDMA devices, infiniband/*, sorted by [ByNumber]. The list does not contain
// RDMA devices in other network namespaces.
func (f *FS) RDMA(d Device) ([]string, error) {
	in := f.in(d.at())
	return in.names("infiniband"), in.err
}

// RDMANodes returns the names below /dev/infiniband of the device nodes of a device's RDMA devices: uverbsN, then
// issmN and umadN, each sorted by N. The list does not depend on the network namespace.
func (f *FS) RDMANodes(d Device) (nodes []string, err error) {
	in := f.in(d.at())
	return append(in.nodes("infiniband_verbs"), in.nodes("infiniband_mad")...), in.err
}

// RDMA describes the RDMA devices of a device on a bus.
type RDMA struct {
	Devices   []string // infiniband/*, see [FS.RDMA]
	Nodes     []string // device nodes, see [FS.RDMANodes]
	LinkLayer string   // ports/1/link_layer of the first device: "InfiniBand", "Ethernet"; "" = unknown
	// Netdev is true if the device has a network interface in any network namespace. The directory net exists
	// as long as there is one (drivers/base/core.c, cleanup_glue_dir).
	Netdev bool
}

// RDMABelow returns the RDMA devices of a device on a bus. The result is empty if the device does not exist.
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

// IsRDMAShared reports whether the visible RDMA devices are open to every network namespace (rdma system show:
// netns shared). Kernels without ib_core's netns_mode always share them.
func (f *FS) IsRDMAShared() (bool, error) {
	d := f.in("module/ib_core/parameters")
	return d.text("netns_mode") != "N", d.err
}
