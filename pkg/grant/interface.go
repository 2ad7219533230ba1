package grant

import (
	"errors"
	"path/filepath"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/sysfs"
)

// For is Of for a device that a Finder has found. info is its description, or one that the
// Finder was given and did not contradict.
func (g Granter) For(found *discovery.Device, info *devinfo.Info) (Grant, error) {
	g.SF, g.Shared = found.SF, found.Shared
	return g.Of(info, found.IsInterface)
}

// ForInterface is For after ADD: the interface is in the network namespace at the path
// netns, and info is what the device-info file says. If the file describes another device
// than the interface's, only what the node's settings allow of that device is given.
//
// It fails with link.ErrNoNetns, or if the kernel cannot be read.
func (g Granter) ForInterface(finder *discovery.Finder, netns, ifName string, info *devinfo.Info) (Grant, error) {
	// Looked at as widely as a plugin may have been told to: a device that is shared must
	// be seen to be.
	search := *finder
	search.Switches = nil // a representor is nothing that a container could have
	found, err := search.Find(discovery.Target{Existing: info, Netns: netns, IfName: ifName, FollowLower: true, SubfunctionParent: true})
	if conflict := (*discovery.ConflictError)(nil); errors.As(err, &conflict) {
		found, err = &discovery.Device{}, nil
	}
	if err != nil {
		return Grant{}, err
	}
	return g.For(found, info)
}

// NodesBelow is Nodes of the machine whose root is mounted at a path; "" = ours. A
// container's own /dev lacks what was made after its start.
func NodesBelow(root string) Nodes {
	return func(path string) (cdispec.Node, error) {
		n, err := sysfs.ReadNode(filepath.Join("/", root, path))
		return cdispec.Node{Path: path, Type: n.Type, Major: n.Major, Minor: n.Minor, Perm: n.Perm, UID: n.UID, GID: n.GID}, err
	}
}
