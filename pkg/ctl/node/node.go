// Package node reads the state of a node, running or captured: the attachments in the plugin's journal and in
// cni-dra-driver's records, and their present states. Only [Node.EndLeases] writes. Packages above format the output.
package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Options are the paths of a node and the functions that examine it.
type Options struct {
	Settings config.Node
	Sys      *sysfs.FS
	Finder   *discovery.Finder
	ClaimDir string // directory of cni-dra-driver's records
	BootID   string
	Root     string // directory with the files of a captured host; "" = /

	NetnsGone func(path string) (bool, error) // reports whether a network namespace no longer exists

	// Sriovnet finds a representor with sriovnet; nil for a capture, which sriovnet cannot read.
	Sriovnet func(pf string, flavour link.Flavour, number int) (string, error)
}

// Node is an opened node. Path and dir translate file names in settings and journal.
type Node struct {
	Options
	journal *journal.Journal
	checker check.Checker
}

// Open opens a node, running or captured. It sets h.Finder.Sys to h.Sys.
func Open(h Options) *Node {
	h.Finder.Sys = h.Sys
	n := &Node{Options: h}
	n.checker = check.Checker{Finder: h.Finder, Dir: n.dir, NetnsGone: h.NetnsGone, BootID: h.BootID}
	n.journal = journal.Open(n.Path(h.Settings.StateDir), h.BootID)
	n.journal.NetnsGone = h.NetnsGone
	return n
}

// Path returns the path at which a file of the host can be read. For a captured host the path is below the
// directory where it was unpacked, even if name contains "..".
func (n *Node) Path(name string) string {
	return filepath.Join("/", n.Root, filepath.Clean("/"+name))
}

// dir opens a directory of device-info files or CDI specs. For an attachment, pass Entry.Dir, to which ADD
// wrote, because the node settings may have changed.
func (n *Node) dir(path string) *store.Dir { return store.Open(n.Path(path)) }

// text replaces the paths in a message by the paths on the host.
func (n *Node) text(message string) string {
	if n.Root == "" {
		return message
	}
	return strings.ReplaceAll(message, n.Root+"/", "/")
}

// FileThere reports whether a file exists. A file without read permission counts as existing.
func (n *Node) FileThere(path string) bool {
	_, err := os.Lstat(n.Path(path))
	return !errors.Is(err, fs.ErrNotExist)
}
