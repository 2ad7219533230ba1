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
