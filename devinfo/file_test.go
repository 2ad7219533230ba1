package devinfo_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"devinfo-cni.io/devinfo"
)

func vf() *devinfo.Info {
	return &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "0000:3b:00.2"}}
}

// What one line writes, ReadFile reads.
func TestWriteFileCompletesTheVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "devinfo/cni/net1")
	for version, want := range map[string]string{"": devinfo.SpecVersion, "1.0.0": "1.0.0", "1.2.0": "1.2.0"} {
		info := vf()
		info.Version = version
		must(t, devinfo.WriteFile(path, info))
		got, err := devinfo.ReadFile(path)
		must(t, err)
		equal(t, "versions of info and file, and the address", []string{info.Version, got.Version, got.PCI.Address}, []string{version, want, info.PCI.Address})
	}
}

func TestWriteFileRefusesInvalidInfoAndKeepsTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "net1")
	must(t, devinfo.WriteFile(path, vf()))
	before, err := os.ReadFile(path)
	must(t, err)
	malformed, huge := parse(t, `{"type": "pci", "version": 1, "pci": {"pci-address": "0000:3b:00.2"}}`), vf()
	huge.Extra = raws{"x": json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)}
	deep, twice := vf(), vf() // no reader of this package would take them
	deep.Extra = raws{"x": json.RawMessage(strings.Repeat("[", 100) + strings.Repeat("]", 100))}
	twice.Extra = raws{"\xfe": json.RawMessage("1"), "\xff": json.RawMessage("2")} // JSON has U+FFFD for both
	for want, info := range map[string]*devinfo.Info{
		"$.type: missing":        nil,
		"$.pci: missing":         {Type: devinfo.TypePCI},
		"must be a PCI address":  {Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: "3b:00.2"}},
		"must be a version 1.x":  {Type: devinfo.TypePCI, Version: "2.0.0", PCI: vf().PCI},
		"must be a version MAJO": {Type: devinfo.TypePCI, Version: "1.1", PCI: vf().PCI},
		"$.version: 1: must be":  malformed,
		"more than 1 MiB":        huge,
		"more than 100 levels":   deep,
		"a duplicate key":        twice,
	} {
		err := devinfo.WriteFile(path, info)
		if err == nil || !strings.HasPrefix(err.Error(), path+": ") || !strings.Contains(err.Error(), want) ||
			errors.As(err, new(*devinfo.InvalidError)) == (info == huge || info == deep || info == twice) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	long := filepath.Join(dir, strings.Repeat("x", 256))
	must(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755), os.Symlink("none", filepath.Join(dir, "link")))
	inFile := devinfo.WriteFile(filepath.Join(path, "a/net2"), vf())
	equal(t, "in a file", []any{fmt.Sprint(inFile), errors.Is(inFile, fs.ErrExist)}, []any{path + ": not a directory", false})
	fails(t, devinfo.WriteFile("", vf()), "no path")
	fails(t, devinfo.WriteFile(filepath.Join(dir, "dir"), vf()), "dir")
	fails(t, devinfo.RemoveFile(filepath.Join(dir, "dir")), "dir")
	fails(t, devinfo.WriteFile(filepath.Join(long, "net1"), vf()), "mkdir "+long)
	fails(t, devinfo.RemoveFile(long), syscall.ENAMETOOLONG.Error())
	fails(t, devinfo.WriteFile(filepath.Join(dir, "link/net1"), vf()), syscall.ENOENT.Error())
	now, err := os.ReadFile(path)
	must(t, err)
	equal(t, "the file", string(now), string(before))
	equal(t, "left", listed(t, dir), []string{"dir", "link", "net1"})
}

func TestWriteFileSetsTheModesOfWhatItCreates(t *testing.T) {
	top := t.TempDir()
	must(t, os.Chmod(top, 0o711))
	path := filepath.Join(top, "a/b/net1")
	old := syscall.Umask(0o077)
	err := devinfo.WriteFile(path, vf())
	syscall.Umask(old)
	must(t, err)
	must(t, os.Chmod(filepath.Join(top, "a"), 0o700))
	must(t, devinfo.WriteFile(path, vf()))
	for of, want := range map[string]fs.FileMode{"": 0o711, "a": 0o700, "a/b": 0o755, "a/b/net1": 0o644} {
		stat, err := os.Stat(filepath.Join(top, of))
		must(t, err)
		equal(t, of, stat.Mode().Perm(), want)
	}
}

func TestWriteFileReplacesALink(t *testing.T) {
	dir := t.TempDir()
	victim := write(t, "victim")
	must(t, os.Symlink(victim, filepath.Join(dir, "net1")))
	must(t, devinfo.WriteFile(filepath.Join(dir, "net1"), vf()), os.Remove(filepath.Join(dir, "net1")), os.Symlink(victim, filepath.Join(dir, "net1")))
	must(t, devinfo.RemoveFile(filepath.Join(dir, "net1")), devinfo.RemoveFile(filepath.Join(dir, "net1")), devinfo.RemoveFile(filepath.Join(dir, "none/net1")))
	must(t, devinfo.RemoveFile("")) // of a DEL without a path
	text, err := os.ReadFile(victim)
	must(t, err)
	equal(t, "the target", string(text), "victim")
	equal(t, "left", listed(t, dir), []string(nil))
}

func TestConcurrentWritersLeaveOneWholeFile(t *testing.T) {
	dir := t.TempDir()
	for n := range 50 {
		path := filepath.Join(dir, fmt.Sprint(n), "net1")
		var writers sync.WaitGroup
		for range 4 {
			writers.Go(func() {
				wrote := devinfo.WriteFile(path, vf())
				if _, err := devinfo.ReadFile(path); wrote != nil || err != nil {
					t.Error(wrote, err)
				}
			})
		}
		writers.Wait()
		equal(t, "left", listed(t, filepath.Dir(path)), []string{"net1"})
	}
}

// The devinfo plugin's garbage collection takes a writer for dead and removes its temporary file.
func TestWriterWhoseTemporaryFileIsRemovedWritesItAgain(t *testing.T) {
	dir := t.TempDir()
	var removed atomic.Int32
	go func() {
		for t.Context().Err() == nil {
			temporary, _ := filepath.Glob(dir + "/.*.devinfo")
			for _, name := range temporary {
				if os.Remove(name) == nil {
					removed.Add(1)
				}
			}
		}
	}()
	for removed.Load() < 3 {
		must(t, devinfo.WriteFile(filepath.Join(dir, "net1"), vf()))
	}
}

func listed(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A program that keeps one map of device information in a JSON text of its own gets the specification's keys.
func TestMapsAloneAreJSON(t *testing.T) {
	for text, device := range map[string]devinfo.Device{
		`{"pci-address":"0000:3b:00.2","x":[1]}`:                           &devinfo.PCI{Address: "0000:3b:00.2", Extra: raws{"x": json.RawMessage("[1]")}},
		`{"parent-device":"vdpa0","driver":"vhost","path":"/dev/vhost-0"}`: &devinfo.VDPA{ParentDevice: "vdpa0", Driver: "vhost", Path: "/dev/vhost-0"},
		`{"mode":"client","path":"/a"}`:                                    &devinfo.VhostUser{Mode: "client", Path: "/a"},
		`{"role":"slave","path":"/a","mode":"inject-punt"}`:                &devinfo.Memif{Role: "slave", Path: "/a", Mode: "inject-punt"},
	} {
		for _, v := range []any{device, reflect.ValueOf(device).Elem().Interface()} {
			got, err := json.Marshal(v)
			must(t, err)
			equal(t, "JSON", string(got), text)
		}
		read := reflect.New(reflect.TypeOf(device).Elem()).Interface()
		for _, good := range []string{text, "null"} {
			must(t, json.Unmarshal([]byte(good), read))
			equal(t, good, read, device)
		}
		for _, bad := range []string{"[]", `"x"`, `{"path":"/a","path":"/b"}`} {
			fails(t, json.Unmarshal([]byte(bad), read), "")
		}
	}
	m := new(devinfo.Memif)
	must(t, json.Unmarshal([]byte(`{"mode":"punt"}`), m))
	equal(t, "mode", m.Mode, "inject-punt")
}
