package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

func TestANodeHasTypeAndNumber(t *testing.T) {
	for path, want := range map[string]sysfs.Node{
		"/dev/null": {Type: "c", Major: 1, Minor: 3}, "/dev/zero": {Type: "c", Major: 1, Minor: 5}, "/dev/tty": {Type: "c", Major: 5},
	} {
		stat, err := os.Stat(path)
		must(t, err)
		raw := stat.Sys().(*syscall.Stat_t)
		want.Perm, want.UID, want.GID = stat.Mode().Perm(), raw.Uid, raw.Gid
		if got, err := sysfs.ReadNode(path); err != nil || got != want {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	must(t, os.Symlink("/dev/null", link))
	if got, err := sysfs.ReadNode(link); err != nil || got.Type != "c" {
		t.Errorf("a link to one: %+v, %v", got, err)
	}
	for _, path := range []string{dir, "", "/proc/self/status"} {
		if got, err := sysfs.ReadNode(path); err == nil {
			t.Errorf("%q: %+v", path, got)
		}
	}
	if _, err := sysfs.ReadNode(filepath.Join(t.TempDir(), "vfio")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}
