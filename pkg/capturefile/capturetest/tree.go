package capturetest

import "io/fs"

// A Tree is a file system that reports each call to a test, and lets the test change the results.
type Tree struct {
	fs.FS
	Asked func(name string) error                // called before each call; its error fails the call; may be nil
	Lists func(part []fs.DirEntry) []fs.DirEntry // returns the entries to report instead of part; may be nil
}

func ask[T any](t Tree, op, name string, how func(fs.FS, string) (T, error)) (answer T, err error) {
	if t.Asked != nil {
		if err = t.Asked(name); err != nil {
			return answer, &fs.PathError{Op: op, Path: name, Err: err}
		}
	}
	return how(t.FS, name)
}

func (t Tree) ReadLink(name string) (string, error)   { return ask(t, "readlink", name, fs.ReadLink) }
func (t Tree) Lstat(name string) (fs.FileInfo, error) { return ask(t, "lstat", name, fs.Lstat) }
func (t Tree) Stat(name string) (fs.FileInfo, error)  { return ask(t, "stat", name, fs.Stat) }
func (t Tree) ReadFile(name string) ([]byte, error)   { return ask(t, "open", name, fs.ReadFile) }

func (t Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := ask(t, "open", name, fs.ReadDir)
	return t.lists(list), err
}

func (t Tree) Open(name string) (fs.File, error) {
	f, err := ask(t, "open", name, fs.FS.Open)
	if dir, ok := f.(fs.ReadDirFile); ok {
		return openDir{dir, t}, err
	}
	return f, err
}

func (t Tree) lists(part []fs.DirEntry) []fs.DirEntry {
	if t.Lists == nil {
		return part
	}
	return t.Lists(part)
}

type openDir struct {
	fs.ReadDirFile
	of Tree
}

func (d openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	part, err := d.ReadDirFile.ReadDir(n)
	return d.of.lists(part), err
}
