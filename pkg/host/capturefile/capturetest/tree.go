package capturetest

import "io/fs"

// A Tree is a file system that reports each call to a test, and lets the test change the results.
type Tree struct {
	fs.FS
	BeforeCall func(name string) error                // called before each call; its error fails the call; may be nil
	Listed     func(part []fs.DirEntry) []fs.DirEntry // returns the entries to report instead of part; may be nil
}

func call[T any](t Tree, op, name string, do func(fs.FS, string) (T, error)) (result T, err error) {
	if t.BeforeCall != nil {
		if err = t.BeforeCall(name); err != nil {
			return result, &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	return do(t.FS, name)
}

func (t Tree) ReadLink(name string) (string, error)   { return call(t, "readlink", name, fs.ReadLink) }
func (t Tree) Lstat(name string) (fs.FileInfo, error) { return call(t, "lstat", name, fs.Lstat) }
func (t Tree) Stat(name string) (fs.FileInfo, error)  { return call(t, "stat", name, fs.Stat) }
func (t Tree) ReadFile(name string) ([]byte, error)   { return call(t, "open", name, fs.ReadFile) }

func (t Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := call(t, "open", name, fs.ReadDir)
	return t.listed(list), err
}

func (t Tree) Open(name string) (fs.File, error) {
	f, err := call(t, "open", name, fs.FS.Open)
	if dir, ok := f.(fs.ReadDirFile); ok {
		return openDir{dir, t}, err
	}
	return f, err
}

func (t Tree) listed(part []fs.DirEntry) []fs.DirEntry {
	if t.Listed == nil {
		return part
	}
	return t.Listed(part)
}

type openDir struct {
	fs.ReadDirFile
	of Tree
}

func (d openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	part, err := d.ReadDirFile.ReadDir(n)
	return d.of.listed(part), err
}
