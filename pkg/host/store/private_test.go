package store_test

import (
	"errors"
	"io/fs"
	"os"
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

// both returns a plain and a durable directory, neither of which exists.
func both(t *testing.T) map[string]*store.Dir {
	t.Helper()
	dir := t.TempDir()
	return map[string]*store.Dir{"plain": store.Private(dir + "/plain/state"), "durable": store.Durable(dir + "/durable/state")}
}

func readError(d *store.Dir, name string) error {
	_, err := d.Read(name)
	return err
}

func TestWriteReplacesAndRemoveLeavesNothing(t *testing.T) {
	for kind, d := range both(t) {
		t.Run(kind, func(t *testing.T) {
			difftest.Is(t, readError(d, "a"), fs.ErrNotExist)
			difftest.Must(t, d.Remove("a"), d.Sweep(nil))
			if _, err := os.Lstat(d.Path("")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the directory exists: %v", err)
			}
			for _, content := range []string{"a longer first content", "short", ""} {
				difftest.Must(t, d.Write("a", []byte(content)))
				expect(t, d, "a", content)
			}
			difftest.Must(t, d.Link("b", "a"))
			difftest.Is(t, d.Link("b", "c"), fs.ErrExist)
			names, err := d.Names()
			difftest.Must(t, err)
			difftest.Equal(t, names, []string{"a"})
			difftest.Must(t, d.Remove("a"), d.Remove("a"))
			if target, err := os.Readlink(d.Path("b")); target != "a" || err != nil {
				t.Errorf("the link of a file that is gone: got %q, %v", target, err)
			}
			difftest.Must(t, d.Remove("b"), d.Remove("b"))
			difftest.Holds(t, d.Path(""))
		})
	}
}

func TestTooLargeFileIsAnError(t *testing.T) {
	const limit = 64 << 20
	d := store.Private(t.TempDir())
	difftest.Is(t, d.Write("a", make([]byte, limit+1)), store.ErrTooLarge)
	difftest.Must(t, d.Write("a", nil), os.Truncate(d.Path("a"), limit)) // a sparse file
	if got, err := d.Read("a"); len(got) != limit || err != nil {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	difftest.Must(t, os.Truncate(d.Path("a"), limit+1))
	difftest.Is(t, readError(d, "a"), store.ErrTooLarge)
	difftest.Holds(t, d.Path(""), "a")
}

// The methods must not follow a link or block on a FIFO.
func TestWriteReplacesIrregularFile(t *testing.T) {
	parent := t.TempDir()
	d := store.Private(parent + "/state")
	difftest.Must(t, d.Make(), os.WriteFile(parent+"/victim", []byte("v"), 0o600))
	difftest.Must(t, d.Link("link", "../victim"), d.Link("dangling", "../nothing"), syscall.Mkfifo(d.Path("fifo"), 0o600))
	for _, name := range []string{"link", "dangling", "fifo"} {
		if got, err := d.Read(name); err == nil {
			t.Errorf("%s: read %q", name, got)
		}
		difftest.Must(t, d.Write(name, []byte("new")))
		expect(t, d, name, "new")
	}
	difftest.Must(t, os.Mkdir(d.Path("dir"), 0o700))
	if read, write := readError(d, "dir"), d.Write("dir", nil); read == nil || write == nil {
		t.Errorf("a directory: %v, %v", read, write)
	}
	difftest.Must(t, os.Symlink("../victim", d.Path(".link.devinfo")), d.Write("link", []byte("x")))
	expect(t, d, "link", "x")
	difftest.Must(t, syscall.Mkfifo(d.Path(".fifo.devinfo"), 0o600), d.Remove("fifo"))
	difftest.Holds(t, d.Path(""), "dangling", "dir", "link")
	difftest.Equal(t, difftest.Read(t, parent+"/victim"), "v")
}

func TestImpossibleDirectoryIsEmptyForReaders(t *testing.T) {
	top := t.TempDir()
	difftest.Must(t, os.WriteFile(top+"/file", nil, 0o600), os.Symlink("nothing", top+"/dangling"))
	for _, path := range []string{"/file", "/file/sub", "/dangling", "/dangling/sub"} {
		for kind, d := range map[string]*store.Dir{"plain": store.Private(top + path), "durable": store.Durable(top + path)} {
			if write, link := d.Write("a", nil), d.Link("a", "b"); write == nil || link == nil {
				t.Errorf("%s, %s: %v, %v", path, kind, write, link)
			}
			_, entries := d.Entries()
			difftest.Must(t, entries, d.Remove("a"), d.Sweep(nil))
			difftest.Is(t, readError(d, "a"), fs.ErrNotExist)
		}
	}
}

func TestUnexposedNeedsRootOwnedPath(t *testing.T) {
	linktest.Run(t, func(t *testing.T) { // /run belongs to root and has mode 0755
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
			"/run/tmp/out": "/run/alone", "/run/round": "round", "/run/through": "/run/tmp/../alone",
		} {
			difftest.Must(t, os.Symlink(target, link))
		}
		for path, why := range map[string]string{
			"/": "", "/run/alone": "", "/run/alone/infos": "", "/run/absolute/infos": "", "/run/alone/relative": "",
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
			if err := store.Unexposed(path); why == "" && err != nil || why != "" && (err == nil || !strings.Contains(err.Error(), why)) {
				t.Errorf("%s: got %v, want %q", path, err, why)
			}
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

func TestUnexposedRejectsOtherOwner(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		difftest.Must(t, os.MkdirAll("/run/theirs/infos", 0o755))
		if err := os.Chown("/run/theirs", 1, 0); errors.Is(err, syscall.EINVAL) {
			t.Skip("an ordinary user's namespace has no second user")
		} else if err != nil {
			t.Fatal(err)
		}
		difftest.Says(t, store.Unexposed("/run/theirs/infos"), "/run/theirs belongs to user 1: users other than root can replace its contents")
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
			if err := store.Own(c.dir, c.names...); c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("%s %s: got %v, want %q", c.dir, c.names, err, c.why)
			}
		}
		if err := os.Lchown("/run/tmp/link", 1, 0); err == nil { // an ordinary user's namespace has no second user
			difftest.Says(t, store.Own("/run/tmp/link"), "/run/tmp/link belongs to user 1")
		}
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
