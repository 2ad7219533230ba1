package capturefile

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
)

// node is a file, link or directory of the tree. It implements fs.DirEntry.
type node struct {
	name    string
	mode    fs.FileMode
	data    []byte        // content of a file
	errno   syscall.Errno // error of reading a file; 0 = none
	target  string        // target of a link
	parent  *node         // nil for the root
	entries []*node       // entries of a directory, sorted by name
}

func newDir(name string) *node { return &node{name: name, mode: fs.ModeDir | 0o755} }

func (n *node) Name() string      { return n.name }
func (n *node) IsDir() bool       { return n.mode.IsDir() }
func (n *node) Type() fs.FileMode { return n.mode.Type() }

func (n *node) Info() (fs.FileInfo, error) { return info{n.name, n}, nil }

// info is the fs.FileInfo of a node under the requested name.
type info struct {
	name string
	*node
}

func (i info) Name() string       { return i.name }
func (i info) Size() int64        { return int64(len(i.data) + len(i.target)) }
func (i info) Mode() fs.FileMode  { return i.mode }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) Sys() any           { return nil }

// find returns the index for a name in the entries, and whether an entry has it.
func (n *node) find(name string) (int, bool) {
	return slices.BinarySearchFunc(n.entries, name, func(e *node, name string) int {
		return strings.Compare(e.name, name)
	})
}

// insert inserts leaf at name, a clean path below n or "" for n itself. It creates the directories in the path.
func (n *node) insert(name string, leaf *node) error {
	for name != "" {
		first, rest, _ := strings.Cut(name, "/")
		i, there := n.find(first)
		if !there {
			child := leaf
			if rest != "" {
				child = newDir("")
			}
			child.name, child.parent = first, n
			n.entries = slices.Insert(n.entries, i, child)
		} else if rest == "" && !(n.entries[i].IsDir() && leaf.IsDir()) {
			return errors.New("appears twice")
		} else if !n.entries[i].IsDir() {
			return fmt.Errorf("%q is not a directory", first)
		}
		n, name = n.entries[i], rest
	}
	return nil
}

// maxLinks is the maximum number of links in a path, as in os.Root.
const maxLinks = 8

var errEscapes = errors.New("path escapes from parent")

// walk resolves name by component, as the kernel does: ".." in a link is the parent of the directory that contains
// the link. If follow is set, walk also follows a link at the end.
func (n *node) walk(name string, follow bool) (*node, error) {
	for rest, links := name, 0; rest != ""; {
		if !n.IsDir() {
			return nil, syscall.ENOTDIR
		}
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		switch part {
		case "", ".":
			continue
		case "..":
			if n.parent == nil {
				return nil, errEscapes
			}
			n = n.parent
			continue
		}
		i, there := n.find(part)
		if !there {
			return nil, syscall.ENOENT
		}
		child := n.entries[i]
		if child.target == "" || !follow && rest == "" {
			n = child
			continue
		}
		if links++; links > maxLinks {
			return nil, syscall.ELOOP
		}
		if strings.HasPrefix(child.target, "/") {
			return nil, errEscapes
		}
		if rest != "" {
			rest = "/" + rest
		}
		rest = child.target + rest
	}
	return n, nil
}
