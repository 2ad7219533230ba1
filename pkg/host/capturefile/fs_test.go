package capturefile_test

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/test/difftest"
)

// box has the relevant forms of sysfs: a device in the list of its bus, a link through a directory that is itself a
// link, a class, and an attribute that fails.
//
//go:embed testdata/box.txtar
var box string

func TestFailingReadsReturnErrno(t *testing.T) {
	sys := parse(t, box).Sys()
	const name = "class/net/eth0/phys_switch_id"
	var read *fs.PathError
	if _, err := fs.ReadFile(sys, name); !errors.As(err, &read) || read.Path != name || read.Err != syscall.EOPNOTSUPP {
		t.Errorf("ReadFile: %v", err)
	}
	f, err := sys.Open(name) // opening succeeds, as in sysfs
	difftest.Must(t, err)
	_, err = io.ReadAll(f)
	difftest.Is(t, err, errors.ErrUnsupported)
	if info, err := fs.Stat(sys, name); err != nil || !info.Mode().IsRegular() || info.Name() != "phys_switch_id" {
		t.Errorf("Stat: %v, %v", info, err)
	}
}

// paths returns all paths up to some depth, including paths through links, and some missing ones.
func paths(sys fs.FS, dir string, depth int) []string {
	list := []string{dir, path.Join(dir, "absent"), path.Join(dir, "absent/too")}
	entries, _ := fs.ReadDir(sys, dir)
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		list = append(list, name, name+"/x")
		if depth > 0 && e.Type() != 0 {
			list = append(list, paths(sys, name, depth-1)...)
		}
	}
	return list
}

// outcome returns the results of all calls for a name, in comparable form.
type outcome struct {
	Content, Target, Stat, Lstat string
	Entries                      []string
	Errors                       [5]string
}

func look(sys fs.FS, name string) (o outcome) {
	data, err := fs.ReadFile(sys, name)
	o.Content, o.Errors[0] = string(data), class(err)
	o.Target, err = fs.ReadLink(sys, name)
	o.Errors[1] = class(err)
	info, err := fs.Stat(sys, name)
	o.Stat, o.Errors[2] = described(info), class(err)
	info, err = fs.Lstat(sys, name)
	o.Lstat, o.Errors[3] = described(info), class(err)
	entries, err := fs.ReadDir(sys, name)
	o.Errors[4] = class(err)
	for _, e := range entries {
		o.Entries = append(o.Entries, e.Name()+" "+e.Type().String())
	}
	return o
}

func described(info fs.FileInfo) string {
	if info == nil {
		return ""
	}
	text := info.Name() + " " + info.Mode().Type().String()
	if !info.IsDir() {
		text += fmt.Sprint(" ", info.Size())
	}
	return text
}

// class reduces an error to the part that callers can test.
func class(err error) string {
	if err == nil {
		return ""
	}
	var p *fs.PathError
	if !errors.As(err, &p) {
		return "no PathError: " + err.Error()
	}
	return p.Err.Error()
}

func TestSysBehavesLikeOSRootOfUnpackedTree(t *testing.T) {
	// Omit the failing file, which is unpacked as a directory.
	h := parse(t, strings.Replace(box, " !EOPNOTSUPP", "", 1))
	dir := t.TempDir()
	difftest.Must(t, h.Unpack(dir))
	root, err := os.OpenRoot(dir)
	difftest.Must(t, err)
	defer root.Close()
	names := append(paths(h.Sys(), ".", 7), "", "/", "bus/", "../x", "bus//pci", "bus/../bus", "bus/./pci")
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		difftest.Same(t, name, look(h.Sys(), name), look(root.FS(), name))
	}
}

func TestSysPassesFSTest(t *testing.T) {
	// TestFS reads each file, so the host must not have failing files or links to missing files.
	sys := parse(t, `box: made up
-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/0000:01:00.0 --
-- sys/devices/0000:01:00.0/vendor --
0x8086
-- sys/devices/0000:01:00.0/name -> vendor --
-- sys/devices/0000:01:00.0/net/ --
`).Sys()
	difftest.Must(t, fstest.TestFS(sys, "bus/pci/devices/0000:01:00.0", "devices/0000:01:00.0/name", "devices/0000:01:00.0/net"))
	difftest.Must(t, fstest.TestFS(parse(t, "box").Sys()))
	dir, err := sys.Open("devices/0000:01:00.0")
	difftest.Must(t, err)
	if all, err := dir.(fs.ReadDirFile).ReadDir(0); err != nil || len(all) != 3 {
		t.Errorf("got %v, %v", all, err)
	}
}

func TestUnpackWritesFailingFilesAsDirectories(t *testing.T) {
	dir := t.TempDir() + "/new/sys"
	difftest.Must(t, parse(t, box).Unpack(dir))
	_, err := os.ReadFile(dir + "/class/net/eth0/phys_switch_id")
	difftest.Is(t, err, syscall.EISDIR)
}

func TestUnpackStaysInDirectory(t *testing.T) {
	dir := t.TempDir()
	difftest.Must(t, os.Symlink(t.TempDir(), dir+"/a"))
	if err := parse(t, "box\n-- sys/a/b --\n1\n").Unpack(dir); err == nil {
		t.Error("unpacked through a link that was there before")
	}
	difftest.Says(t, parse(t, "box").Unpack("/dev/null/sys"), "mkdir /dev/null: not a directory")
}
