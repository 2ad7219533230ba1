package capturefile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Sys returns the tree below sys/. It behaves like the FS of an os.Root at /sys: links are followed one component at
// a time, links out of the tree are refused, and errors are *fs.PathError around a syscall.Errno.
func (h *Host) Sys() fs.FS { return sysFS{h.root} }

type sysFS struct{ root *node }

var _ fs.ReadLinkFS = sysFS{}

func (f sysFS) find(op, name string, follow bool) (info, error) {
	if !fs.ValidPath(name) {
		return info{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n, err := f.root.walk(name, follow)
	if err != nil {
		return info{}, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return info{path.Base(name), n}, nil
}

func (f sysFS) Open(name string) (fs.File, error) {
	i, err := f.find("open", name, true)
	if err != nil {
		return nil, err
	}
	return &file{info: i, path: name, content: bytes.NewReader(i.data), unlisted: i.entries}, nil
}

func (f sysFS) Lstat(name string) (fs.FileInfo, error) {
	i, err := f.find("lstat", name, false)
	if err != nil {
		return nil, err
	}
	return i, nil
}

func (f sysFS) ReadLink(name string) (string, error) {
	i, err := f.find("readlink", name, false)
	if err != nil {
		return "", err
	}
	if i.target == "" {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: syscall.EINVAL}
	}
	return i.target, nil
}

type file struct {
	info
	path     string
	content  *bytes.Reader
	unlisted []*node
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }

func (f *file) Read(p []byte) (int, error) {
	errno := f.errno
	if f.IsDir() {
		errno = syscall.EISDIR
	}
	if errno != 0 {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: errno}
	}
	return f.content.Read(p)
}

func (f *file) ReadDir(n int) ([]fs.DirEntry, error) {
	if !f.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: f.path, Err: syscall.ENOTDIR}
	}
	list := f.unlisted
	if n > 0 {
		if len(list) == 0 {
			return nil, io.EOF
		}
		list = list[:min(n, len(list))]
	}
	f.unlisted = f.unlisted[len(list):]
	entries := make([]fs.DirEntry, len(list))
	for i, n := range list {
		entries[i] = fs.FileInfoToDirEntry(info{n.name, n})
	}
	return entries, nil
}

// Unpack writes the tree below sys/ into dir, which represents /sys. It creates dir if necessary; dir should be
// empty. Links become links. A file whose read fails becomes a directory, so that reading it fails with EISDIR.
func (h *Host) Unpack(dir string) error { return h.root.unpackTo(dir) }

// UnpackRoot writes the tree below root/ into dir, which represents /. It creates dir if necessary; dir should be
// empty.
func (h *Host) UnpackRoot(dir string) error { return h.rest.unpackTo(dir) }

func (n *node) unpackTo(dir string) error {
	err := os.MkdirAll(dir, 0o755) // #nosec G301 -- a capture is not secret
	root, openErr := os.OpenRoot(dir)
	if err = cmp.Or(err, openErr); err != nil {
		return err
	}
	defer root.Close()
	return n.unpack(root, ".")
}

func (n *node) unpack(root *os.Root, at string) error {
	for _, e := range n.entries {
		name := path.Join(at, e.name)
		var err error
		switch {
		case e.target != "":
			err = root.Symlink(e.target, name)
		case e.IsDir() || e.errno != 0:
			if err = root.Mkdir(name, 0o755); err == nil {
				err = e.unpack(root, name)
			}
		default:
			err = root.WriteFile(name, e.data, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// node is a file, link or directory of the tree.
type node struct {
	name    string
	mode    fs.FileMode   // only the type
	data    []byte        // content of a file
	errno   syscall.Errno // error of reading a file; 0 = none
	target  string        // target of a link
	parent  *node         // nil for the root
	entries []*node       // entries of a directory, sorted by name
}

func newDir(name string) *node { return &node{name: name, mode: fs.ModeDir} }

func (n *node) IsDir() bool { return n.mode.IsDir() }

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
