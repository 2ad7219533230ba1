package devinfo_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"devinfo-cni.io/devinfo"
)

func write(t *testing.T, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "net1")
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadFileOfMissingFileIsErrNotExist(t *testing.T) {
	if _, err := devinfo.ReadFile(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestReadFileRefusesADirectory(t *testing.T) {
	dir := t.TempDir()
	_, err := devinfo.ReadFile(dir)
	if err == nil || !strings.HasPrefix(err.Error(), dir+": not a regular file (mode d") {
		t.Errorf("got %v", err)
	}
}

func TestReadFileDoesNotWaitForTheWriterOfAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := devinfo.ReadFile(path); done <- err }()
	select {
	case err := <-done:
		if want := path + ": not a regular file (mode prw-r--r--)"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("ReadFile blocks")
	}
}

func TestReadFileReadsAtMostOneMiB(t *testing.T) {
	path := write(t, "{")
	if err := os.Truncate(path, 1<<30); err != nil { // sparse
		t.Fatal(err)
	}
	_, err := devinfo.ReadFile(path)
	if want := path + ": device-info has more than 1 MiB"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestReadFileNamesTheFileInItsErrors(t *testing.T) {
	path := write(t, `[]`)
	_, err := devinfo.ReadFile(path)
	if want := path + ": device-info is a JSON array: must be one JSON object (Device Information Specification, 4)"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	path = write(t, `{"version": "2.0.0"}`)
	_, err = devinfo.ReadFile(path)
	var version *devinfo.VersionError
	if !errors.As(err, &version) || !strings.HasPrefix(err.Error(), path+": device-info version") {
		t.Errorf("got %v", err)
	}
}

func TestReadFileReportsAllErrorsAndNoWarnings(t *testing.T) {
	path := write(t, `{"type": "vhost-user", "version": "1.9.0", "vhost-user": {"mode": "both", "path": ""}}`)
	i, err := devinfo.ReadFile(path)
	want := path + `: invalid device-info: $.vhost-user.mode: "both": must be "client" or "server" (Device Information Specification, 3.1.5.1);` +
		` $.vhost-user.path: missing: required when type is "vhost-user" (Device Information Specification, 3.1.5.2)`
	var invalid *devinfo.InvalidError
	if i != nil || !errors.As(err, &invalid) || invalid.Path != path || len(invalid.Violations) != 2 || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestReadFileAcceptsWarnings(t *testing.T) {
	i, err := devinfo.ReadFile(write(t, `{"type": "vhost-user", "version": "1.9.0", "vhost-user": {"mode": "client", "path": "a.sock"}}`))
	if err != nil || i.VhostUser.Path != "a.sock" || len(i.Validate().Warnings()) != 2 {
		t.Errorf("got %v, %v", i, err)
	}
}
