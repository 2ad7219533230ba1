package sysfs_test

import (
	"os"
	"path/filepath"
	"testing"

	"devinfo-cni.io/pkg/sysfs"
)

func TestAnAttributeIsWrittenAndNoneIsMade(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "a")
	must(t, os.WriteFile(at, nil, 0o600))
	write := sysfs.Writer(dir)
	if err := write("a", "x\n"); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(at); string(got) != "x\n" {
		t.Errorf("got %q", got)
	}
	if err := write("b", "x"); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
