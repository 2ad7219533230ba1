package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

func readError(d *store.Dir, name string) error {
	_, err := d.Read(name)
	return err
}

func TestOnlyFilesAreListedAndLinksStay(t *testing.T) {
	for kind, open := range kinds {
		d := open(filepath.Join(t.TempDir(), "state"))
		difftest.Must(t, d.Link("b", "a"), d.Write("c", nil), d.Write("a", nil), os.Mkdir(d.Path("dir"), 0o755))
		difftest.Write(t, d.Path(".hidden"), "", 0o600)
		difftest.Is(t, d.Link("b", "c"), fs.ErrExist)
		difftest.As[*store.NameError](t, d.Link(".b", "c"))
		names, err := d.Names()
		difftest.Must(t, err)
		difftest.Equal(t, names, []string{"a", "c"})
		difftest.Must(t, d.Remove("c"), d.Remove("a"), os.Remove(d.Path("dir")), os.Remove(d.Path(".hidden")))
		if target, err := os.Readlink(d.Path("b")); target != "a" || err != nil {
			t.Errorf("%s: the link of a file that is gone: got %q, %v", kind, target, err)
		}
		difftest.Must(t, d.Remove("b"), d.Remove("b"))
		difftest.Holds(t, d.Path(""))
		difftest.Must(t, os.MkdirAll(d.Path("full/sub"), 0o755))
		if err := d.Remove("full"); err == nil {
			t.Errorf("%s: a directory that is not empty was removed", kind)
		}
	}
	shared := store.Open(t.TempDir())
	difftest.Must(t, os.Mkdir(shared.Path("dir"), 0o755))
	difftest.Is(t, shared.Remove("dir"), syscall.EISDIR)
	difftest.Holds(t, shared.Path(""), "dir")
}

func TestFileOverTheLimitIsNeitherReadNorWritten(t *testing.T) {
	for limit, d := range map[int64]*store.Dir{1 << 20: store.Open(t.TempDir()), 64 << 20: store.Private(t.TempDir())} {
		difftest.Is(t, d.Write("a", make([]byte, limit+1)), store.ErrTooLarge)
		difftest.Must(t, d.Write("a", nil), os.Truncate(d.Path("a"), limit)) // a sparse file
		if got, err := d.Read("a"); int64(len(got)) != limit || err != nil {
			t.Errorf("got %d bytes, %v", len(got), err)
		}
		difftest.Is(t, d.Write("a", make([]byte, limit+1)), store.ErrTooLarge)
		if stat, err := os.Stat(d.Path("a")); err != nil || stat.Size() != limit {
			t.Errorf("the refused Write left %v, %v", stat, err)
		}
		for _, size := range []int64{limit + 1, 1 << 30} {
			difftest.Must(t, os.Truncate(d.Path("a"), size))
			difftest.Is(t, readError(d, "a"), store.ErrTooLarge)
		}
		difftest.Holds(t, d.Path(""), "a")
	}
}

func TestImpossibleDirectoryIsEmptyForReaders(t *testing.T) {
	top := t.TempDir()
	difftest.Must(t, os.WriteFile(top+"/file", nil, 0o600), os.Symlink("nothing", top+"/dangling"))
	for path, why := range map[string]string{"/file": "/file: not a directory", "/file/sub": "/file: not a directory", "/dangling": "/dangling", "/dangling/sub": "/dangling"} {
		for _, open := range kinds {
			d := open(top + path)
			for _, err := range []error{d.Write("a", nil), d.Link("a", "b"), d.Writable()} {
				difftest.Says(t, err, top+why)
			}
			_, entries := d.Entries()
			difftest.Must(t, entries, d.Remove("a"), d.Sweep(nil))
			difftest.Is(t, readError(d, "a"), fs.ErrNotExist)
		}
	}
}

func TestUnreachableDirectoryIsAnError(t *testing.T) {
	loop := t.TempDir() + "/loop"
	difftest.Must(t, os.Symlink("loop", loop))
	for _, err := range []error{store.Lockable(loop), store.SyncDir(loop), store.Own(loop), store.Own(filepath.Dir(loop), "loop")} {
		difftest.Is(t, err, syscall.ELOOP)
	}
	difftest.Is(t, store.Own("/"+strings.Repeat("x", 256)), syscall.ENAMETOOLONG)
}

// expectWhy fails the test unless the error says why, or is nil if why is "".
func expectWhy(t *testing.T, what string, err error, why string) {
	t.Helper()
	if why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
		t.Errorf("%s: got %v, want %q", what, err, why)
	}
}

func TestUnexposedNeedsRootOwnedPath(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := func(path string, mode uint32) { difftest.Must(t, os.Mkdir(path, 0o755), syscall.Chmod(path, mode)) }
		dir("/run/alone", 0o755)
		dir("/run/alone/infos", 0)
		dir("/run/alone/group", 0o775)
		dir("/run/alone/group/infos", 0o755)
		dir("/run/tmp", 0o1777)
		dir("/run/tmp/infos", 0o755)
		difftest.Must(t, os.WriteFile("/run/file", nil, 0o644))
		for link, target := range map[string]string{
			"/run/absolute": "/run/alone", "/run/alone/relative": "../alone/infos", "/run/into": "tmp/infos", "/run/nowhere": "gone/infos",
			"/run/tmp/out": "/run/alone", "/run/round": "round", "/run/root": "/", "/run/through": "/run/tmp/../alone",
		} {
			difftest.Must(t, os.Symlink(target, link))
		}
		target := "/run/alone"
		for n := range 41 { // the kernel follows 40
			link := fmt.Sprint("/run/", n+1, "links")
			difftest.Must(t, os.Symlink(target, link))
			target = link
		}
		for path, why := range map[string]string{
			"/run/40links": "", "/run/41links": "too many levels of symbolic links",
			"/": "", "/run/root": "", "/run/alone": "", "/run/alone/infos": "", "/run/absolute/infos": "", "/run/alone/relative": "",
			"/run/alone/gone/infos": "", "/run/nowhere": "", // only root can create these
			"/run/alone/group":       "/run/alone/group has mode drwxrwxr-x",
			"/run/alone/group/infos": "/run/alone/group has mode drwxrwxr-x",
			"/run/tmp":               "/run/tmp has mode dtrwxrwxrwx",
			"/run/tmp/infos":         "/run/tmp has mode dtrwxrwxrwx", // any user could create it after a deletion
			"/run/tmp/gone":          "/run/tmp has mode dtrwxrwxrwx",
			"/run/into":              "/run/tmp has mode dtrwxrwxrwx",
			"/run/tmp/out":           "/run/tmp has mode dtrwxrwxrwx",
			"/run/through":           "/run/tmp has mode dtrwxrwxrwx",
			"/run/round":             "too many levels of symbolic links",
			"/run/file/infos":        "not a directory",
			"run":                    "must be an absolute path",
		} {
			expectWhy(t, path, store.Unexposed(path), why)
		}
	})
}

// A link in the node's root must lead to a directory of the node, not of the container.
func TestUnexposedBelowFollowsLinksInRoot(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		difftest.Must(t, os.MkdirAll("/run/host/run/infos", 0o755), os.MkdirAll("/run/host/var", 0o755), os.Mkdir("/run/open", 0), syscall.Chmod("/run/open", 0o777))
		difftest.Must(t, os.Symlink("/run", "/run/host/var/run"), os.Symlink("../../../run/open", "/run/host/out"))
		difftest.Must(t, store.UnexposedBelow("/run/host", "/var/run/infos"), os.Mkdir("/run/host/run/open", 0), syscall.Chmod("/run/host/run/open", 0o777))
		difftest.Says(t, store.UnexposedBelow("/run/host", "/out"), "/run/open has mode")
	})
}

// A journal may be below a directory with the sticky bit, as those of tests are below /tmp.
func TestOwnLetsStickyDirectoriesAbovePass(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := func(path string, mode uint32) { difftest.Must(t, os.Mkdir(path, 0o755), syscall.Chmod(path, mode)) }
		dir("/run/tmp", 0o1777)
		dir("/run/tmp/state", 0o700)
		dir("/run/tmp/state/open", 0o1777)
		dir("/run/tmp/group", 0o775)
		dir("/run/tmp/group/state", 0o700)
		difftest.Must(t, os.Symlink("/run/tmp/group/state", "/run/tmp/state/link"), os.Symlink("/run/tmp/state", "/run/tmp/link"), os.WriteFile("/run/file", nil, 0o666))
		for _, c := range []struct {
			dir   string
			names []string
			why   string
		}{
			{"/run/tmp/state", []string{"gone", "gone/below"}, ""},
			{"/run/tmp/link", nil, ""},
			{"/run/file/state", nil, ""},
			{"/run/tmp/gone", []string{"below"}, ""},
			{"/run/tmp", nil, "/run/tmp has mode dtrwxrwxrwx"},
			{"/run/tmp/state", []string{"gone", "open"}, "/run/tmp/state/open has mode dtrwxrwxrwx"},
			{"/run/tmp/state", []string{"link"}, "/run/tmp/group has mode drwxrwxr-x"},
			{"/run/tmp/group/state", nil, "/run/tmp/group has mode drwxrwxr-x"},
			{"/run/tmp/state/link", nil, "/run/tmp/group has mode drwxrwxr-x"},
		} {
			expectWhy(t, fmt.Sprint(c.dir, c.names), store.Own(c.dir, c.names...), c.why)
		}
	})
}

func TestDirectoryOfAnotherUserIsExposed(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		difftest.Must(t, os.MkdirAll("/run/theirs/infos", 0o755), os.Symlink("/run", "/run/link"))
		if err := os.Lchown("/run/link", 1, 0); errors.Is(err, syscall.EINVAL) {
			t.Skip("an ordinary user's namespace has no second user")
		}
		difftest.Must(t, os.Chown("/run/theirs", 1, 0))
		difftest.Says(t, store.Unexposed("/run/theirs/infos"), "/run/theirs belongs to user 1: users other than root can replace its contents")
		difftest.Says(t, store.Own("/run/link"), "/run/link belongs to user 1")
	})
}

func TestAloneWaitsForLock(t *testing.T) {
	d := store.Private(t.TempDir())
	difftest.Is(t, store.Private(d.Path("none")).Alone(time.Minute, func() error { return nil }), fs.ErrNotExist)
	lock := storetest.Lock(t, d.Path(""))
	difftest.As[*store.BusyError](t, d.Alone(0, func() error { return d.Link("a", "b") }))
	difftest.Holds(t, d.Path(""))
	synctest.Test(t, func(t *testing.T) {
		time.AfterFunc(time.Second, func() { lock.Close() })
		difftest.Is(t, d.Alone(time.Minute, func() error { return os.ErrInvalid }), os.ErrInvalid)
	})
	storetest.Lock(t, d.Path("")) // succeeds because Alone has released its lock
}
