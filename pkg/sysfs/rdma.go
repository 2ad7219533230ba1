package sysfs

import "path"

// RDMA lists the device's RDMA devices, infiniband/*, in numerical order. None
// may mean that they were moved to another network namespace.
func (f *FS) RDMA(d Device) ([]string, error) { return f.names(path.Join(d.at(), "infiniband")) }

// RDMANodes lists the nodes below /dev/infiniband of the device's RDMA devices: uverbsN,
// then issmN and umadN, each in numerical order. Unlike infiniband/ they do not depend on
// the network namespace.
func (f *FS) RDMANodes(d Device) (nodes []string, err error) {
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		dir := path.Join(d.at(), class)
		names, err := f.dirs(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if has, err := f.hasNode(path.Join(dir, name)); err != nil {
				return nil, err
			} else if has {
				nodes = append(nodes, name)
			}
		}
	}
	return nodes, nil
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
	dir, ok, err := f.device(bus, name)
	if !ok {
		return RDMA{}, err
	}
	d := Function{dir: dir} // or another device
	if r.Devices, err = f.RDMA(d); err != nil {
		return RDMA{}, err
	}
	if r.Nodes, err = f.RDMANodes(d); err != nil || len(r.Devices) == 0 {
		return r, err
	}
	if r.LinkLayer, _, err = f.text(path.Join(dir, "infiniband", r.Devices[0], "ports/1/link_layer")); err != nil {
		return RDMA{}, err
	}
	r.Netdev, err = f.exists(dir, "net")
	return r, err
}

// IsRDMAShared reports whether the RDMA devices that are seen here are open to every network
// namespace (rdma system show: netns shared). A kernel without ib_core's netns_mode knows no
// other way.
func (f *FS) IsRDMAShared() (bool, error) {
	mode, _, err := f.text("module/ib_core/parameters/netns_mode")
	return mode != "N", err
}
