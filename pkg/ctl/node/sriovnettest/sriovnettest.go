// Package sriovnettest runs sriovnet on captured hosts, so that tests can compare it with package link.
package sriovnettest

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"sync"

	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/filesystem"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/link"
)

// swapped guards sriovnet's package variables: its file system and its netlink client.
var swapped sync.Mutex

// Sriovnet is [node.Sriovnet] on the host of e.
func Sriovnet(e link.Eswitch, pf string, flavour link.Flavour, number int) (string, error) {
	swapped.Lock()
	defer swapped.Unlock()
	files, ops := filesystem.Fs, netlinkops.GetNetlinkOps()
	defer func() {
		filesystem.Fs = files
		netlinkops.SetNetlinkOps(ops)
	}()
	filesystem.Fs = sysFiles{sys: e.Sys}
	netlinkops.SetNetlinkOps(portOps{ops, e.Ports})
	return node.Sriovnet(pf, flavour, number)
}

// portOps replaces the one netlink call of sriovnet that the comparison uses.
type portOps struct {
	netlinkops.NetlinkOps
	ports func(pf string) ([]link.PortRecord, error)
}

func (o portOps) DevLinkGetDevicePortList(_, device string) (list []*netlink.DevlinkPort, err error) {
	flavours := map[string]uint16{"pcivf": nl.DEVLINK_PORT_FLAVOUR_PCI_VF, "pcisf": nl.DEVLINK_PORT_FLAVOUR_PCI_SF}
	ports, err := o.ports(device)
	for _, p := range ports {
		list = append(list, &netlink.DevlinkPort{
			NetdeviceName: p.Netdev, PortFlavour: flavours[p.Flavour], ControllerNumber: p.Controller,
			PfNumber: p.PFNumber, VfNumber: p.VFNumber, SfNumber: p.SFNumber, External: p.External,
		})
	}
	return list, err
}

// sysFiles is the tree below /sys as sriovnet's file system. A call that would write panics.
type sysFiles struct {
	filesystem.Filesystem
	sys fs.FS
}

// in returns the name of a file below the tree. fs.FS refuses paths outside /sys.
func (sysFiles) in(name string) string { return strings.TrimPrefix(name, "/sys/") }

func (f sysFiles) Stat(name string) (os.FileInfo, error) { return fs.Stat(f.sys, f.in(name)) }
func (f sysFiles) Readlink(name string) (string, error)  { return fs.ReadLink(f.sys, f.in(name)) }
func (f sysFiles) ReadFile(name string) ([]byte, error)  { return fs.ReadFile(f.sys, f.in(name)) }
func (f sysFiles) ReadDir(name string) (infos []os.FileInfo, err error) {
	entries, err := fs.ReadDir(f.sys, f.in(name))
	for _, e := range entries {
		info, infoErr := e.Info()
		infos, err = append(infos, info), errors.Join(err, infoErr)
	}
	return infos, err
}
