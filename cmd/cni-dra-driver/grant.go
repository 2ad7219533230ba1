package main

import (
	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// granter is what the containers of a claim get of a device: as the devinfo plugin gives
// it for other attachments.
func granter(node config.Node, sys *sysfs.FS, hostRoot string) func(info *devinfo.Info, netns, ifName string) (grant.Grant, error) {
	kernel := link.NewKernel(sys.Files())
	finder := &discovery.Finder{Sys: sys, Interfaces: kernel, Switches: kernel}
	g := grant.Granter{Sys: sys, Nodes: grant.NodesBelow(hostRoot), Policy: grant.Policy{Devices: node.CDIDevices, SocketDirs: node.SocketDirs}}
	return func(info *devinfo.Info, netns, ifName string) (grant.Grant, error) {
		return g.ForInterface(finder, netns, ifName, info)
	}
}
