package main

import (
	"errors"
	"path/filepath"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/pod"
	"devinfo-cni.io/pkg/sysfs"
)

// grants decides what the containers of a claim get of a device, as the devinfo plugin
// does for other attachments.
type grants struct {
	grant.Granter
	finder discovery.Finder
}

func granter(node config.Node, sys *sysfs.FS, hostRoot string) *grants {
	kernel := link.NewKernel(sys.Files())
	return &grants{
		grant.Granter{Sys: sys, Nodes: nodesBelow(hostRoot), Policy: grant.Policy{Devices: node.CDIDevices, SocketDirs: node.SocketDirs}},
		discovery.Finder{Sys: sys, Interfaces: kernel, Switches: kernel},
	}
}

// of is asked after ADD: the interface is in the network namespace, and its description
// in the device-info file.
func (g *grants) of(info *devinfo.Info, of pod.Identity, netns, ifName string) (grant.Grant, error) {
	// Looked at as widely as a plugin may have been told to: a device that is shared must
	// be seen to be.
	device, err := g.finder.Find(discovery.Target{Existing: info, Netns: netns, IfName: ifName, FollowLower: true, SubfunctionParent: true})
	var conflict *discovery.ConflictError
	switch {
	case errors.As(err, &conflict): // the file is about something else than the interface
		device = &discovery.Device{}
	case err != nil:
		return grant.Grant{}, err
	}
	granter := g.Granter
	granter.Pod, granter.SF, granter.Shared = of, device.SF, device.Shared
	return granter.Of(info, device.Own)
}

// nodesBelow reads device nodes where the host's root is mounted: a container's /dev does
// not know those that were made after its start.
func nodesBelow(root string) grant.Nodes {
	return func(path string) (cdispec.Node, error) {
		n, err := sysfs.ReadNode(filepath.Join("/", root, path))
		return cdispec.Node{Path: path, Type: n.Type, Major: n.Major, Minor: n.Minor}, err
	}
}
