package capturefile

import (
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
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
	return &file{info: i, path: name, unread: i.data, unlisted: i.entries}, nil
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
	unread   []byte
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
	if len(f.unread) == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	n := copy(p, f.unread)
	f.unread = f.unread[n:]
	return n, nil
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
		entries[i] = n
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
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
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
