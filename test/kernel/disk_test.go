package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/link/linktest"
)

// mount puts a tmpfs of its own at dir, until undo is called.
func mount(t *testing.T, dir, options string, flags uintptr) (undo func()) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0755,"+options); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}
}

const filler = ".filler"

// fillDisk leaves no room for another byte.
func fillDisk(dir string) error {
	f, err := os.Create(filepath.Join(dir, filler))
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 4096)
	for {
		switch _, err := f.Write(block); {
		case errors.Is(err, syscall.ENOSPC):
			return nil
		case err != nil:
			return err
		}
	}
}

// refusedADD checks an ADD that fails for want of disk, what is left of it, and
// the DEL that follows.
func refusedADD(t *testing.T, pod, conf, msg string) {
	t.Helper()
	call(t, "ADD", pod, conf).fails(t, 5, msg)
	left := func() string {
		list := strings.Split(files(t, infoDir, stateDir), "\n")
		var other []string
		for _, path := range list {
			if path != "" && filepath.Base(path) != filler {
				other = append(other, path)
			}
		}
		return strings.Join(other, "\n")
	}
	same(t, "files left by ADD", left(), "")
	same(t, "addresses", addresses(t), "")
	same(t, "interfaces in the pod", podLinks(t, pod), "")
	call(t, "DEL", pod, conf).ok(t)
	same(t, "files left by DEL", left(), "")
}

func TestFullDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		temp := stateDir + "/attachments/.net@c0ffee@net1.devinfo"
		for _, c := range []struct{ dir, options, file string }{
			{infoDir, "size=16k", infoFile + ": write"},
			{infoDir, "nr_inodes=2", infoFile + ": write"},
			{stateDir, "size=16k", "write " + temp},
			{stateDir, "nr_inodes=5", "open " + temp},
			{stateDir, "nr_inodes=6", "lease of device-info file net-c0ffee_net1: mkdir " + stateDir + "/leases/file/net-c0ffee_net1"},
		} {
			undo := mount(t, c.dir, c.options, 0)
			if c.dir == stateDir {
				for _, sub := range []string{"attachments", "leases/file"} {
					if err := os.MkdirAll(stateDir+"/"+sub, 0o700); err != nil {
						t.Fatal(err)
					}
				}
			}
			if strings.HasPrefix(c.options, "size") {
				if err := fillDisk(c.dir); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(filepath.Join(c.dir, filler), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			t.Log(c.dir, c.options)
			refusedADD(t, pod, standalone(infoFile), c.file+": no space left on device")
			refusedADD(t, pod, delegates(bridgeConf), c.file+": no space left on device")
			undo()
		}
	})
}

// The disk becomes full while the children run.
func TestDiskThatFillsUpUndoesTheChildren(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		fill := func(dir string) string {
			return fmt.Sprintf(`{"type": "child", "play": {"fill": %q, "pciID": %q}}`, dir, vf)
		}
		undo := mount(t, infoDir, "size=64k", 0)
		onlyChildrenKnow := strings.Replace(delegates(bridgeConf, fill(infoDir)), `"deviceID"`, `"dns": {}, "//"`, 1)
		refusedADD(t, pod, onlyChildrenKnow, infoFile+": write: no space left on device")
		same(t, "calls of the child", childCalls(t), "ADD\nDEL\nDEL\n")
		undo()
		undo = mount(t, stateDir, "size=64k", 0)
		refusedADD(t, pod, delegates(fill(stateDir), bridgeConf), `failed to set network "net" cached result: write `+stateDir+"/libcni/net@c0ffee@net1/results/net-c0ffee-net1: no space left on device")
		same(t, "calls of the child", childCalls(t), "ADD\nDEL\nDEL\n")
		undo()
	})
}

// The disk becomes full while the pod runs.
func TestDelOnAFullDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		conf := delegates(bridgeConf)
		for _, dir := range []string{infoDir, stateDir} {
			undo := mount(t, dir, "size=64k", 0)
			call(t, "ADD", pod, conf).ok(t)
			if err := fillDisk(dir); err != nil {
				t.Fatal(err)
			}
			call(t, "CHECK", pod, conf).ok(t)
			call(t, "DEL", pod, conf).ok(t)
			same(t, "files left", files(t, infoDir, stateDir), filepath.Join(dir, filler))
			undo()
		}
	})
}

func TestReadOnlyDirectory(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		for dir, msg := range map[string]string{
			infoDir:  infoFile + ": write: read-only file system",
			stateDir: "mkdir " + stateDir + "/attachments: read-only file system",
		} {
			undo := mount(t, dir, "", unix.MS_RDONLY)
			refusedADD(t, pod, standalone(infoFile), msg)
			refusedADD(t, pod, delegates(bridgeConf), msg)
			sub := map[string]string{infoDir: "device-info directory: " + infoDir, stateDir: "state directory: " + stateDir}[dir]
			call(t, "STATUS", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`).fails(t, 50, sub+": not writable: read-only file system")
			undo()
		}
	})
}

// Some tools make the tree with mode 000.
func TestModeZeroTreeIsMended(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		tree := []string{"/run/k8s.cni.cncf.io", "/run/k8s.cni.cncf.io/devinfo", infoDir}
		if err := os.MkdirAll(infoDir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, dir := range tree {
			if err := os.Chmod(dir, 0); err != nil {
				t.Fatal(err)
			}
		}
		call(t, "ADD", pod, standalone(infoFile)).ok(t)
		same(t, "device-info file", read(t, infoFile), vfFile)
		modes(t, append(tree, infoFile), "drwxr-xr-x drwxr-xr-x drwxr-xr-x -rw-r--r--")
		call(t, "DEL", pod, standalone(infoFile)).ok(t)
		nothingLeft(t)
	})
}

func modes(t *testing.T, paths []string, want string) {
	t.Helper()
	var got []string
	for _, path := range paths {
		stat, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, stat.Mode().String())
	}
	same(t, fmt.Sprint("modes of ", paths), strings.Join(got, " "), want)
}

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		for _, umask := range []int{0o077, 0} {
			old := unix.Umask(umask)
			a := call(t, "ADD", pod, standalone(infoFile))
			unix.Umask(old)
			a.ok(t)
			modes(t, []string{"/run/k8s.cni.cncf.io", "/run/k8s.cni.cncf.io/devinfo", infoDir, infoFile},
				"drwxr-xr-x drwxr-xr-x drwxr-xr-x -rw-r--r--")
			modes(t, []string{stateDir, stateDir + "/attachments", stateDir + "/attachments/net@c0ffee@net1"},
				"drwxr-xr-x drwx------ -rw-------")
			call(t, "DEL", pod, standalone(infoFile)).ok(t)
			for _, dir := range []string{"/run/k8s.cni.cncf.io", stateDir} {
				if err := os.RemoveAll(dir); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// Nothing to undo: then nothing is made either, and where ADD could not write STATUS says so.
func TestDELWithNothingToUndoNeedsNoDisk(t *testing.T) {
	linktest.Run(t, func(t *testing.T) {
		stage(t, "igb-sriov")
		pod := linktest.NewNetns(t)
		for _, c := range []struct {
			dir, options string
			flags        uintptr
			status, add  string
		}{
			{stateDir, "nr_inodes=2,", 0, "state directory: " + stateDir + ": not writable: no space left on device",
				"mkdir " + stateDir + "/attachments: no space left on device"},
			{infoDir, "nr_inodes=2,", 0, "device-info directory: " + infoDir + ": not writable: no space left on device",
				infoFile + ": write: no space left on device"},
			{stateDir, "", unix.MS_RDONLY, "state directory: " + stateDir + ": not writable: read-only file system",
				"mkdir " + stateDir + "/attachments: read-only file system"},
			{infoDir, "", unix.MS_RDONLY, "device-info directory: " + infoDir + ": not writable: read-only file system",
				infoFile + ": write: read-only file system"},
		} {
			undo := mount(t, c.dir, c.options+"size=64k", c.flags)
			if c.flags == 0 {
				if err := os.WriteFile(filepath.Join(c.dir, filler), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			t.Log(c.dir, c.options, c.flags)
			call(t, "STATUS", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`).fails(t, 50, c.status)
			call(t, "ADD", pod, standalone(infoFile)).fails(t, 5, c.add)
			call(t, "DEL", pod, standalone(infoFile)).ok(t)
			undo()
		}
	})
}
