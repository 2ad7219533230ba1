// Package crosschecktest runs sriovnet on captured hosts, so that tests can compare it with package link.
package crosschecktest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/filesystem"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/ctl/crosscheck"
	"devinfo-cni.io/pkg/host/link"
)

// swapped guards sriovnet's package variables: its file system and its netlink client.
var swapped sync.Mutex

// Sriovnet is [crosscheck.Sriovnet] on the host of e.
func Sriovnet(e link.Eswitch, pf string, flavour link.Flavour, number int) (string, error) {
	swapped.Lock()
	defer swapped.Unlock()
	files, ops := filesystem.Fs, netlinkops.GetNetlinkOps()
	defer func() {
		filesystem.Fs = files
		netlinkops.SetNetlinkOps(ops)
	}()
	filesystem.Fs = sysFiles{e.Sys}
	netlinkops.SetNetlinkOps(portOps{ops, e.Ports})
	return crosscheck.Sriovnet(pf, flavour, number)
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

// sysFiles is the tree below /sys as sriovnet's file system. It is read-only.
type sysFiles struct{ sys fs.FS }

// in returns the name of a file below the tree. fs.FS refuses paths outside /sys.
func (sysFiles) in(name string) string { return strings.TrimPrefix(name, "/sys/") }

func (f sysFiles) Stat(name string) (os.FileInfo, error) { return fs.Stat(f.sys, f.in(name)) }
func (f sysFiles) Readlink(name string) (string, error)  { return fs.ReadLink(f.sys, f.in(name)) }
func (f sysFiles) ReadFile(name string) ([]byte, error)  { return fs.ReadFile(f.sys, f.in(name)) }
func (f sysFiles) ReadDir(name string) ([]os.FileInfo, error) {
	entries, err := fs.ReadDir(f.sys, f.in(name))
	infos := make([]os.FileInfo, len(entries))
	for i, e := range entries {
		infos[i] = entryInfo{e}
	}
	return infos, err
}

func (sysFiles) Create(string) (filesystem.File, error)           { return nil, syscall.EROFS }
func (sysFiles) Rename(string, string) error                      { return syscall.EROFS }
func (sysFiles) MkdirAll(string, os.FileMode) error               { return syscall.EROFS }
func (sysFiles) Chtimes(string, time.Time, time.Time) error       { return syscall.EROFS }
func (sysFiles) RemoveAll(string) error                           { return syscall.EROFS }
func (sysFiles) Remove(string) error                              { return syscall.EROFS }
func (sysFiles) Symlink(string, string) error                     { return syscall.EROFS }
func (sysFiles) WriteFile(string, []byte, os.FileMode) error      { return syscall.EROFS }
func (sysFiles) TempDir(string, string) (string, error)           { return "", syscall.EROFS }
func (sysFiles) TempFile(string, string) (filesystem.File, error) { return nil, syscall.EROFS }
func (sysFiles) Walk(string, filepath.WalkFunc) error             { return errors.ErrUnsupported }

// entryInfo is a FileInfo made without stat(2), because sriovnet uses only the names of up to a thousand entries.
type entryInfo struct{ fs.DirEntry }

func (i entryInfo) Mode() fs.FileMode { return i.Type() }
func (entryInfo) Size() int64         { return 0 }
func (entryInfo) ModTime() time.Time  { return time.Time{} }
func (entryInfo) Sys() any            { return nil }
