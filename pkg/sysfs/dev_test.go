package sysfs_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

func TestOnlyACharacterDeviceIsOne(t *testing.T) {
	if err := sysfs.CharDevice("/dev/null"); err != nil {
		t.Errorf("/dev/null: %v", err)
	}
	dir := t.TempDir()
	if err := sysfs.CharDevice(filepath.Join(dir, "vhost-net")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, file, ""} {
		if sysfs.CharDevice(path) == nil {
			t.Errorf("%q is taken for a character device", path)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	if err := sysfs.CharDevice(link); err != nil {
		t.Errorf("a link to one: %v", err)
	}
}

func TestANodeHasTypeAndNumber(t *testing.T) {
	for path, want := range map[string]sysfs.Node{
		"/dev/null": {Type: "c", Major: 1, Minor: 3}, "/dev/zero": {Type: "c", Major: 1, Minor: 5}, "/dev/tty": {Type: "c", Major: 5},
	} {
		if got, err := sysfs.ReadNode(path); err != nil || got != want {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	if got, err := sysfs.ReadNode(t.TempDir()); err == nil {
		t.Errorf("a directory: %+v", got)
	}
	if _, err := sysfs.ReadNode(filepath.Join(t.TempDir(), "vfio")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
}
