package kernel_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mount puts a tmpfs of its own at dir, until undo is called.
func mount(t *testing.T, dir, options string, flags uintptr) (undo func()) {
	t.Helper()
	must(t, os.MkdirAll(dir, 0o755))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", flags, "mode=0755,"+options))
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
	unchanged := func(by string) {
		t.Helper()
		left := strings.Fields(files(t, infoDir, stateDir))
		left = slices.DeleteFunc(left, func(path string) bool { return filepath.Base(path) == filler })
		same(t, "files left by "+by, strings.Join(left, "\n"), "")
	}
	call(t, "ADD", pod, conf).fails(t, 5, msg)
	unchanged("ADD")
	same(t, "addresses", addresses(t), "")
	same(t, "interfaces in the pod", podLinks(t, pod), "")
	call(t, "DEL", pod, conf).ok(t)
	unchanged("DEL")
}

// Where there is no room for a file STATUS says so. DEL needs none: where nothing is to be undone,
// nothing is made.
func TestADiskThatIsFullOrReadOnly(t *testing.T) {
	const temp = stateDir + "/attachments/.net@c0ffee@net1.devinfo"
	onStage(t, func(t *testing.T, pod string) {
		for _, c := range []struct {
			dir, options string
			flags        uintptr
			begun        bool   // an ADD has been there, and made directories
			add, status  string // their errors; "" = STATUS is not asked
		}{
			{infoDir, "size=16k", 0, false, infoFile + ": write", ""},
			{infoDir, "nr_inodes=2", 0, false, infoFile + ": write", "device-info directory"},
			{stateDir, "size=16k", 0, true, "write " + temp, ""},
			{stateDir, "nr_inodes=2", 0, false, "mkdir " + stateDir + "/attachments", "state directory"},
			{stateDir, "nr_inodes=5", 0, true, "open " + temp, ""},
			{stateDir, "nr_inodes=6", 0, true, "lease of device-info file net-c0ffee_net1: mkdir " + stateDir + "/leases/file/net-c0ffee_net1", ""},
			{infoDir, "", unix.MS_RDONLY, false, infoFile + ": write", "device-info directory"},
			{stateDir, "", unix.MS_RDONLY, false, "mkdir " + stateDir + "/attachments", "state directory"},
		} {
			t.Log(c.dir, c.options)
			undo := mount(t, c.dir, c.options, c.flags)
			why := ": no space left on device"
			if c.begun {
				must(t, os.Mkdir(stateDir+"/attachments", 0o700), os.MkdirAll(stateDir+"/leases/file", 0o700))
			}
			switch {
			case c.flags != 0:
				why = ": read-only file system"
			case strings.HasPrefix(c.options, "size"):
				must(t, fillDisk(c.dir))
			default:
				must(t, os.WriteFile(filepath.Join(c.dir, filler), nil, 0o644))
			}
			if c.status != "" {
				status := call(t, "STATUS", "", `{"cniVersion": "1.1.0", "name": "net", "type": "devinfo"}`)
				status.fails(t, 50, c.status+": "+c.dir+": not writable"+why)
			}
			refusedADD(t, pod, standalone(infoFile), c.add+why)
			refusedADD(t, pod, delegates(bridgeConf), c.add+why)
			undo()
		}
	})
}

// The disk becomes full while the children run.
func TestDiskThatFillsUpUndoesTheChildren(t *testing.T) {
	onStage(t, func(t *testing.T, pod string) {
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
	onStage(t, func(t *testing.T, pod string) {
		conf := delegates(bridgeConf)
		for _, dir := range []string{infoDir, stateDir} {
			undo := mount(t, dir, "size=64k", 0)
			call(t, "ADD", pod, conf).ok(t)
			must(t, fillDisk(dir))
			call(t, "CHECK", pod, conf).ok(t)
			call(t, "DEL", pod, conf).ok(t)
			same(t, "files left", files(t, infoDir, stateDir), filepath.Join(dir, filler))
			undo()
		}
	})
}
