// Package node reads the state of a node, running or captured: the attachments in the plugin's journal and in
// cni-dra-driver's records, and their present states. Only [Node.EndLeases] writes. Packages above format the output.
package node

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// Options are the paths of a node and the functions that examine it.
type Options struct {
	Settings config.Node
	Finder   *discovery.Finder
	ClaimDir string // directory of cni-dra-driver's records
	BootID   string
	Root     string // directory with the files of a captured host; "" = /

	NetnsGone func(path string) (bool, error) // reports whether a network namespace no longer exists

	// Sriovnet is [Sriovnet]; nil for a capture, which it cannot read.
	Sriovnet func(pf string, flavour link.Flavour, number int) (string, error)
}

// Node is an opened node. Path and dir translate file names in settings and journal.
type Node struct {
	Options
	journal *journal.Journal
	checker check.Checker
}

// Open opens a node, running or captured.
func Open(h Options) *Node {
	n := &Node{Options: h}
	n.journal = journal.Open(n.Path(h.Settings.StateDir), h.BootID)
	n.journal.NetnsGone, n.journal.Show = h.NetnsGone, true
	n.journal.OnNode = func() bool { return h.Root == "" && link.OnNode() }
	n.journal.ClaimDir = func() string {
		if h.Root != "" && !n.FileThere(h.ClaimDir) {
			return ""
		}
		return n.Path(h.ClaimDir)
	}
	n.checker = check.Checker{Finder: h.Finder, Dir: n.dir, Journal: n.journal}
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
func (n *Node) text(message string) string { return strings.ReplaceAll(message, n.Root+"/", "/") }

// FileThere reports whether a file exists. A file without read permission counts as existing.
func (n *Node) FileThere(path string) bool {
	_, err := os.Lstat(n.Path(path))
	return !errors.Is(err, fs.ErrNotExist)
}

// Choose returns the attachments of the pods, network, containers or devices with this name, in this order: the first
// kind that has the name is used. A name may also denote one attachment. An interface of the host stands for its device;
// it may be named by an altname.
func (n *Node) Choose(list []Attachment, name string) ([]Attachment, error) {
	names := []string{name}
	i, err := n.Finder.Interfaces.Interface("", name)
	if err == nil {
		names = append(names, i.Name)
		if !i.Borrows() && i.Parent != "" {
			names = append(names, i.Parent)
		}
	}
	isDevice := func(a Attachment, _ string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return byDevice(a, name) }) || n.represented(a, names, err == nil)
	}
	for _, has := range []func(a Attachment, name string) bool{byPod, byNetwork, byContainer, isDevice} {
		others := func(a Attachment) bool { return !has(a, name) }
		if found := slices.DeleteFunc(slices.Clone(list), others); len(found) > 0 {
			return found, nil
		}
	}
	if slices.ContainsFunc(list, func(a Attachment) bool { return a.Verdict == nil }) { // a representor may have been renamed
		n.Judge(list, false)
		return n.Choose(list, name)
	}
	return nil, clierr.For(fmt.Errorf("%s: no attachment of a pod, network, container or device with this name", name), cmp.Or(view.Misspelt(name), "devinfoctl list shows them; devinfoctl inspect shows a device that nobody has"))
}

// byPod matches a pod with or without its namespace, and with the namespace also POD/INTERFACE.
func byPod(a Attachment, name string) bool {
	return a.Pod != "" && (name == a.Pod || name == a.PodName() || name == a.PodName()+"/"+a.Interface)
}

func byNetwork(a Attachment, name string) bool { return name != "" && a.Network == name }

// byContainer matches NETWORK/CONTAINER/INTERFACE, NETWORK/CONTAINER or CONTAINER, where the container ID may
// be a prefix.
func byContainer(a Attachment, name string) bool {
	parts := strings.SplitN(name, "/", 3)
	switch len(parts) {
	case 1:
		return name != "" && strings.HasPrefix(a.ContainerID, name)
	case 2:
		parts = append(parts, a.Interface)
	}
	return a.Network == parts[0] && strings.HasPrefix(a.ContainerID, parts[1]) && a.Interface == parts[2]
}

// byDevice matches a device that the attachment has, shares or names: see [view.Named]. A PF's address also matches its
// VFs.
func byDevice(a Attachment, name string) bool {
	return view.Named(name)(slices.Concat(a.Has, a.Shares, strings.Split(a.RDMA, ","), []string{a.Device, a.PCI, a.PF})...)
}

// represented matches the representor of an attachment's device, by its present name or by that at ADD. If an interface has
// one of the names now, it must be the representor, because programs rename them.
func (n *Node) represented(a Attachment, names []string, there bool) bool {
	is := func(name string) bool { return view.Named(name)(a.Representor, factsOf(a.DeviceInfo).Representor) }
	if !slices.ContainsFunc(names, is) || !there {
		return slices.ContainsFunc(names, is)
	}
	device, err := n.Finder.Find(discovery.Target{DeviceIDs: []config.NamedID{{Key: "device", ID: a.Device}}, SubfunctionParent: true})
	return err != nil || slices.ContainsFunc(device.Facts, func(f discovery.Fact) bool {
		return strings.HasSuffix(f.Key, ".representor-device") && slices.Contains(names, f.Value)
	})
}
