package store_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/host/link/linktest"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/store/storetest"
	"devinfo-cni.io/test/difftest"
)

// mount mounts a disk for one test, which runs inside [linktest.Run].
func mount(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	difftest.Must(t, syscall.Mount("tmpfs", dir, "tmpfs", flags, options))
	t.Cleanup(func() { difftest.Must(t, syscall.Unmount(dir, 0)) }) // fails if a file is still open
	return dir
}

// A failed write keeps the old content and leaves no temporary file.
func TestFullDiskKeepsOldFiles(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		for options, c := range map[string]struct {
			fill     int // size of net2 in bytes
			content  []byte
			writable error
		}{
			"size=64k":    {0, make([]byte, 100<<10), nil},
			"size=68k":    {64 << 10, []byte("new"), syscall.ENOSPC}, // the disk is full
			"nr_inodes=3": {0, nil, syscall.ENOSPC},
		} {
			d := store.Open(mount(t, 0, options))
			difftest.Must(t, d.Write("net1", []byte("old")))
			difftest.Must(t, d.Write("net2", make([]byte, c.fill)))
			if err := d.Write("net1", c.content); !errors.Is(err, syscall.ENOSPC) || !strings.HasPrefix(err.Error(), d.Path("")) {
				t.Errorf("%s: Write: got %v", options, err)
			}
			if err := store.Open(d.Path("cni")).Writable(); !errors.Is(err, c.writable) || err != nil && err.Error() != d.Path("")+": not writable: no space left on device" {
				t.Errorf("%s: Writable: got %v", options, err)
			}
			expect(t, d, "net1", "old")
			difftest.Holds(t, d.Path(""), "net1", "net2")
			difftest.Must(t, d.Remove("net1"))
			difftest.Holds(t, d.Path(""), "net2")
		}
	})
}

// A file system without a limit of files or blocks reports none.
func TestRoomCountsFreeFilesAndBlocks(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		for options, room := range map[string]error{
			"nr_inodes=0,size=0": nil, "nr_inodes=0,size=1m": nil, "nr_inodes=100,size=0": nil, "nr_inodes=0,size=64k": syscall.ENOSPC, "nr_inodes=20,size=0": syscall.ENOSPC,
			"nr_inodes=41,size=0": nil, "nr_inodes=40,size=0": syscall.ENOSPC, fmt.Sprint("nr_inodes=0,size=", 40*os.Getpagesize()): nil,
		} {
			difftest.Is(t, store.Open(mount(t, 0, options)+"/cni").Room(40), room)
		}
	})
}

// The file system devpts has no unnamed files, and an ordinary user may mount it.
func TestWritableChecksModeIfUnnamedFilesAreUnsupported(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := t.TempDir()
		difftest.Must(t, syscall.Mount("devpts", dir, "devpts", 0, "newinstance"))
		t.Cleanup(func() { _ = syscall.Unmount(dir, 0) })
		if f, err := os.OpenFile(dir, 0o20000000|syscall.O_DIRECTORY|os.O_WRONLY, 0o600); err == nil {
			f.Close()
			t.Fatal("it has nameless files")
		}
		difftest.Must(t, store.Open(dir).Writable())
		difftest.Must(t, syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND|syscall.MS_RDONLY, ""))
		if err := store.Open(dir).Writable(); !errors.Is(err, syscall.EROFS) || !strings.HasPrefix(err.Error(), dir+": not writable: ") {
			t.Errorf("read-only: got %v", err)
		}
	})
}

func TestReadOnlyDiskIsNotWritable(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		dir := mount(t, syscall.MS_RDONLY, "")
		d := store.Open(dir + "/devinfo/cni")
		for method, err := range map[string]error{"Write": d.Write("net1", nil), "Writable": d.Writable()} {
			if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), dir) {
				t.Errorf("%s: got %v", method, err)
			}
		}
		for _, d := range []*store.Dir{d, store.Open(dir)} {
			if err := errors.Join(d.Remove("net1"), d.Sweep(nil)); err != nil {
				t.Errorf("with nothing to do: %v", err)
			}
		}
	})
}

func TestWritableChecksNearestAncestorAndCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, dir + "/devinfo/cni"} {
		if err := store.Open(path).Writable(); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	difftest.Holds(t, dir)
	difftest.Must(t, os.Symlink("nothing", dir+"/dangling"))
	err := store.Open(dir + "/dangling/cni").Writable()
	if want := dir + "/dangling: symbolic link to nothing"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// Each mode closes a file or the directory: 0300 to listing, 0500 to changes, 0600 to its files, 0200 to reading. A method
// says so, with the path, or does all that it is to do. A durable change that cannot be synced is made and is an error.
func TestEachMethodSaysWhatModesForbid(t *testing.T) {
	said := map[string]int{}
	for kind, open := range kinds {
		for method, call := range map[string]func(d *store.Dir) error{
			"write":           func(d *store.Dir) error { return d.Write("a", []byte("new")) },
			"write over half": func(d *store.Dir) error { return d.Write("b", []byte("new")) },
			"remove":          func(d *store.Dir) error { return d.Remove("a") },
			"remove half":     func(d *store.Dir) error { return d.Remove("b") },
			"sweep":           func(d *store.Dir) error { return d.Sweep(func(string) {}) },
			"link":            func(d *store.Dir) error { return d.Link("c", "a") },
			"read":            func(d *store.Dir) error { return readError(d, "a") },
			"info":            func(d *store.Dir) error { _, err := d.Info("a"); return err },
			"names": func(d *store.Dir) error {
				names, err := d.Names()
				if err == nil && !slices.Equal(names, []string{"a"}) {
					err = fmt.Errorf("names %q", names)
				}
				return err
			},
			"make":     func(d *store.Dir) error { return d.Make() },
			"writable": func(d *store.Dir) error { return d.Writable() },
			"room":     func(d *store.Dir) error { return d.Room(1) },
			"alone":    func(d *store.Dir) error { return d.Alone(0, func() error { return nil }) },
		} {
			var before, after map[string]string
			for _, door := range []struct {
				name string
				mode fs.FileMode
			}{{"", 0o700}, {"..", 0o600}, {"", 0o300}, {"", 0o500}, {"", 0o600}, {"a", 0o200}, {".b.devinfo", 0}} {
				d := open(filepath.Join(t.TempDir(), "d"))
				for _, name := range []string{"a", ".b.devinfo"} {
					difftest.Write(t, d.Path(name), `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:3b:00.2"}}`, 0o600)
				}
				if before == nil {
					before = content(t, d.Path(""))
				}
				var err error
				difftest.Must(t, os.Chmod(d.Path(door.name), door.mode))
				difftest.WithModes(t, func() { err = call(d) })
				if chmod := os.Chmod(d.Path(door.name), 0o700); !errors.Is(chmod, fs.ErrNotExist) {
					difftest.Must(t, chmod)
				}
				now, what := content(t, d.Path("")), fmt.Sprintf("%s %s, mode %o of %q", kind, method, door.mode, door.name)
				if after == nil {
					difftest.Must(t, err)
					after = now
				}
				switch {
				case err == nil:
					difftest.Same(t, what, now, after)
				case !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), d.Path("")):
					t.Errorf("%s: %v", what, err)
				case (now["a"] != before["a"] || now["b"] != "") && (kind != "durable" || !maps.Equal(now, after)):
					t.Errorf("%s leaves %q", what, now)
				default:
					said[kind]++
				}
			}
		}
	}
	difftest.Equal(t, said, map[string]int{"open": 39, "private": 39, "durable": 43})
}

// The owner of the temporary file could keep its lock for ever, or change the content later.
func TestTemporaryFileOfOtherUserIsNotReused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a file of another user")
	}
	d := store.Open(t.TempDir())
	const temp = ".net1.devinfo"
	difftest.Write(t, d.Path(temp), "theirs", 0o644)
	difftest.Must(t, os.Chown(d.Path(temp), 65534, 65534))
	storetest.Lock(t, d.Path(temp))
	if err := d.Write("net1", []byte("new")); err != nil { // does not wait for the other user's lock
		t.Fatal(err)
	}
	stat, err := os.Stat(d.Path("net1"))
	difftest.Must(t, err)
	if owner := stat.Sys().(*syscall.Stat_t).Uid; owner != 0 {
		t.Errorf("the file belongs to user %d", owner)
	}
}
