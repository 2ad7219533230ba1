package sysfs

import (
	"path"
	"sort"
)

// RDMANodes lists the nodes below /dev/infiniband of the function's RDMA devices: uverbsN,
// then issmN and umadN, each in numerical order. Unlike infiniband/ they do not depend on
// the network namespace.
func (f *FS) RDMANodes(fn Function) ([]string, error) { return f.rdmaNodes(fn.dir) }

// RDMANodesOf is [FS.RDMANodes] for an auxiliary device.
func (f *FS) RDMANodesOf(aux Auxiliary) ([]string, error) { return f.rdmaNodes(aux.dir) }

func (f *FS) rdmaNodes(dir string) (nodes []string, err error) {
	for _, class := range []string{"infiniband_verbs", "infiniband_mad"} {
		names, err := f.dirs(path.Join(dir, class))
		if err != nil {
			return nil, err
		}
		sort.Sort(byNumber(names))
		for _, name := range names {
			if has, err := f.hasNode(path.Join(dir, class, name)); err != nil {
				return nil, err
			} else if has {
				nodes = append(nodes, name)
			}
		}
	}
	return nodes, nil
}
