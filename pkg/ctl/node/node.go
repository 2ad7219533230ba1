// Package node reads what is on a node, running or captured: the attachments that the
// plugin's journal and cni-dra-driver's records have, what has become of each, and what is
// left of those that nobody uses any more. It only reads, but for
// [Node.Collect] and [Node.EndLeases]. What people are shown of it is for packages above.
package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Options say where to look.
type Options struct {
	Settings config.Node
	Sys      *sysfs.FS
	Finder   *discovery.Finder
	ClaimDir string // of cni-dra-driver's records
	BootID   string
	Root     string // "" = /, else where the files of a captured host are unpacked

	Rules func(path string) ([]byte, error) // reads the rules file of cni-dra-driver; nil = it cannot be seen

	NetnsGone func(path string) (bool, error) // whether a network namespace is gone

	// Sriovnet asks sriovnet for a representor; nil = it cannot look at the host.
	Sriovnet func(pf string, flavour link.Flavour, number int) (string, error)
}

// Node is what a node has, opened by Options. Files that settings and journal name are read by Path or dir.
type Node struct {
	Options
	infos   *store.Dir // the device-info files of Settings.DeviceInfoDir
	journal *journal.Journal
	checker check.Checker
}

// Open opens a host; its finder gets the host's Sys.
func Open(h Options) *Node {
	h.Finder.Sys = h.Sys
	n := &Node{Options: h}
	n.infos = n.dir(h.Settings.DeviceInfoDir)
	n.checker = check.Checker{Finder: h.Finder, Dir: n.dir, NetnsGone: h.NetnsGone, BootID: h.BootID}
	n.journal = journal.Open(n.Path(h.Settings.StateDir), h.BootID)
	n.journal.NetnsGone = h.NetnsGone
	return n
}

// Path is where a file of the host, by its absolute path there, can be read. No name
// leads out of where a captured host was unpacked.
func (n *Node) Path(name string) string {
	return filepath.Join("/", n.Root, filepath.Clean("/"+name))
}

// dir is a directory of device-info files or CDI specs. That of an attachment is where
// its ADD wrote, Entry.Dir, which the node settings may have left since.
func (n *Node) dir(path string) *store.Dir { return store.Open(n.Path(path)) }

// text is a message with its paths as they are on the host.
func (n *Node) text(message string) string {
	if n.Root == "" {
		return message
	}
	return strings.ReplaceAll(message, n.Root+"/", "/")
}

// FileThere reports whether a file exists; one that we may not see counts as existing.
func (n *Node) FileThere(path string) bool {
	_, err := os.Lstat(n.Path(path))
	return !errors.Is(err, fs.ErrNotExist)
}
