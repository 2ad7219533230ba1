package capturetest

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/test/difftest"
)

// Paths returns the paths of captured hosts. Tests run in the directory of their package, at any depth.
func Paths(name string) []string {
	pattern := "testdata/hosts/" + name + ".txtar"
	for range 8 {
		if paths, _ := filepath.Glob(pattern); len(paths) > 0 {
			return paths
		}
		pattern = "../" + pattern
	}
	return []string{pattern} // a path that does not exist
}

// Names returns the names of all captured hosts.
func Names(t testing.TB) (names []string) {
	t.Helper()
	for _, path := range Paths("*") {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".txtar"))
	}
	if len(names) < 14 {
		t.Fatalf("the captured hosts are only %q", names)
	}
	return names
}

// Report is the entry with the results of devinfo-try. A capture with it says itself what devinfo must find.
const Report = "node/trial.json"

// Described returns the names of the captured hosts that golden files describe: all but reports.
func Described(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(Names(t), func(name string) bool { return Load(t, name).File(Report) != nil })
}

// Text returns the capture of a host.
func Text(t testing.TB, name string) []byte {
	t.Helper()
	return []byte(difftest.Read(t, Paths(name)[0]))
}

// Without returns the capture without some objects. A word with ":", such as a PCI address, removes all entries that
// contain it. Any other word is an interface. Without removes it as if it were in another network namespace: its device
// keeps an empty directory net.
func Without(text []byte, words ...string) []byte {
	var kept []string
	skip := false
	for line := range strings.Lines(string(text)) {
		gone := slices.ContainsFunc(words, func(word string) bool {
			if strings.Contains(word, ":") {
				return strings.Contains(line, word)
			}
			return strings.Contains(line, "/net/"+word+"/") || strings.Contains(line, "/net/"+word+" ") || strings.Contains(line, `"ifname":"`+word+`"`)
		})
		last := len(kept) - 1
		switch {
		case strings.HasPrefix(line, "-- "):
			skip = gone
			if dir, name, _ := strings.Cut(line, "/net/"); slices.Contains(words, strings.TrimSuffix(name, "/ifindex --\n")) {
				kept = append(kept, dir+"/net/ --\n")
			}
		case strings.HasPrefix(line, "{"):
			skip = gone
		case strings.HasPrefix(line, "]"): // remove the comma after the last element of a list
			skip = false
			kept[last] = strings.TrimSuffix(strings.TrimSuffix(kept[last], "\n"), ",") + "\n"
		}
		if !skip {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept, ""))
}

// Load reads a captured host.
func Load(t testing.TB, name string) *capturefile.Host {
	t.Helper()
	host, err := capturefile.Load(Paths(name)[0])
	difftest.Must(t, err)
	return host
}

// A Tree is a file system that reports each call to a test, and lets the test change the results.
type Tree struct {
	fs.FS
	BeforeCall func(name string) error                // called before each call; its error fails the call; may be nil
	Listed     func(list []fs.DirEntry) []fs.DirEntry // returns the entries of a directory to report instead of list; may be nil
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
func (t Tree) Open(name string) (fs.File, error)      { return call(t, "open", name, fs.FS.Open) }

func (t Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := call(t, "open", name, fs.ReadDir)
	if t.Listed != nil {
		list = t.Listed(list)
	}
	return list, err
}

// EachFailure calls f once, and then once for each call that it makes on the files, which fails with EIO. failed is the
// path of the failed call as soon as it has failed, and "" the first time.
func EachFailure(files fs.FS, f func(sys fs.FS, failed *string)) {
	calls := 0
	f(Tree{FS: files, BeforeCall: func(string) error { calls++; return nil }}, new(string))
	for left := range calls {
		var failed string
		f(Tree{FS: files, BeforeCall: func(name string) error {
			if left--; left != -1 {
				return nil
			}
			failed = name
			return syscall.EIO
		}}, &failed)
	}
}
