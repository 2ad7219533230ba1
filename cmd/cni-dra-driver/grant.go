package main

import (
	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/pod"
	"devinfo-cni.io/pkg/sysfs"
)

// finderOf finds devices of this node.
func finderOf(sys *sysfs.FS) *discovery.Finder {
	kernel := link.NewKernel(sys.Files())
	return &discovery.Finder{Sys: sys, Interfaces: kernel, Switches: kernel}
}

// granter decides what the containers of a claim get of a device, by the same rules as the
// devinfo plugin does for other attachments.
func granter(node config.Node, sys *sysfs.FS, hostRoot string) func(info *devinfo.Info, of pod.Identity, netns, ifName string) (grant.Grant, error) {
	finder := finderOf(sys)
	g := grant.Granter{Sys: sys, Nodes: grant.NodesBelow(hostRoot), Policy: grant.Policy{Devices: node.CDIDevices, SocketDirs: node.SocketDirs}}
	return func(info *devinfo.Info, of pod.Identity, netns, ifName string) (grant.Grant, error) {
		own := g
		own.Pod = of
		return own.ForInterface(finder, netns, ifName, info)
	}
}
