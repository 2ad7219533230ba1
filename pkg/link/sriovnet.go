package link

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/k8snetworkplumbingwg/sriovnet"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/filesystem"
	"github.com/k8snetworkplumbingwg/sriovnet/pkg/utils/netlinkops"
	"github.com/vishvananda/netlink"
)

// sriovnetMu guards what sriovnet keeps in package variables: where it reads
// files and whom it asks for devlink ports.
var sriovnetMu sync.Mutex

// representor lets sriovnet look at this host, and puts its variables back.
func (e Eswitch) representor(pf string, flavour Flavour, number int) (string, error) {
	sriovnetMu.Lock()
	defer sriovnetMu.Unlock()
	files, ops := filesystem.Fs, netlinkops.GetNetlinkOps()
	defer func() {
		filesystem.Fs = files
		netlinkops.SetNetlinkOps(ops)
	}()
	ports := &portOps{NetlinkOps: ops, ports: e.Ports}
	filesystem.Fs = sysFiles{e.Sys}
	netlinkops.SetNetlinkOps(ports)

	get := sriovnet.GetVfRepresentor
	if flavour == SF {
		get = sriovnet.GetSfRepresentor
	}
	name, err := get(pf, number)
	if err != nil && ports.err != nil && !absent(ports.err) {
		err = ports.err // not "not found": nobody knows
	}
	return name, err
}

// portOps is sriovnet's netlink, but for the one question that it asks here,
// which by itself it answers from a dump of all ports of all devices.
type portOps struct {
	netlinkops.NetlinkOps
	ports func(pf string) ([]*netlink.DevlinkPort, error)
	err   error // sriovnet swallows it
}

func (o *portOps) DevLinkGetDevicePortList(_, device string) (ports []*netlink.DevlinkPort, err error) {
	ports, o.err = o.ports(device)
	return ports, o.err
}

// sysFiles is the tree below /sys as sriovnet wants it. It cannot be written to.
type sysFiles struct{ sys fs.FS }

// in is the name below the tree; fs.FS refuses what is left of any other path.
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

// entryInfo is a FileInfo without a stat(2) for each of a thousand entries;
// sriovnet wants their names.
type entryInfo struct{ fs.DirEntry }

func (i entryInfo) Mode() fs.FileMode { return i.Type() }
func (entryInfo) Size() int64         { return 0 }
func (entryInfo) ModTime() time.Time  { return time.Time{} }
func (entryInfo) Sys() any            { return nil }
