// Package install keeps two files on a node: the plugin's executable, in the directory where the container
// runtime looks for plugins, and the node's settings. Each file is replaced atomically. If an installation
// is refused, the existing file remains and the error contains the reason.
//
// An agent marks each file that it installs with a checksum file beside it, .<name>.sha256, in the format
// of sha256sum(1). The agent restores a marked file after any change and may remove it. [PluginFile] and
// [Settings] document how they treat unmarked files.
package install

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/host/store"
)

type file string

func (f file) dir() string  { return filepath.Dir(string(f)) }
func (f file) name() string { return filepath.Base(string(f)) }

// agentMark is the mark of an agent. driverMark is the mark of cni-dra-driver; it does not make an agent restore the
// file.
func (f file) agentMark() file { return file(filepath.Join(f.dir(), "."+f.name()+".sha256")) }
func (f file) driverMark() file {
	return file(filepath.Join(f.dir(), "."+f.name()+".cni-dra-driver.sha256"))
}

// sum returns the checksum in a mark, or "" if the mark is missing or invalid.
func (f file) sum() (string, error) {
	data, err := store.ReadFile(string(f), largest)
	if sum, _, _ := strings.Cut(string(data), " "); len(sum) == 2*sha256.Size {
		return sum, err
	}
	return "", store.UnlessGone(err)
}

func (f file) marked() (bool, error) {
	sum, err := f.agentMark().sum()
	return sum != "", err
}

// mark records in a mark that the file was installed with this checksum, or is about to be.
func (f file) mark(mark file, sum string) error {
	has, err := mark.sum()
	if err == nil && has != sum {
		_, err = mark.put([]byte(sum+"  "+f.name()+"\n"), 0o644)
	}
	return err
}

// put atomically replaces the file, and syncs the new file before the rename, because a power failure must
// not leave an incomplete file under the final name. The warning is an error of setting the SELinux label.
// put holds syscall.ForkLock, because a forked process would inherit the open file, and running the plugin
// would fail with ETXTBSY until that process calls exec.
func (f file) put(data []byte, mode fs.FileMode) (warning, err error) {
	err = f.locked(func() error {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		_, err := store.Replace(f.dir(), string(f), func(temp *os.File) error {
			defer temp.Close()
			if _, err := temp.Write(data); err != nil {
				return err
			}
			if err := temp.Chmod(mode); err != nil {
				return err
			}
			warning = inherit(temp, f.dir())
			return temp.Sync()
		})
		if err != nil {
			return err
		}
		return store.SyncDir(f.dir())
	})
	return warning, err
}

func owned(stat fs.FileInfo) bool {
	return int(stat.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

// safeMode reports whether all users can run the file and only its owner, the current user, can write to it.
func safeMode(stat fs.FileInfo) bool { return stat.Mode().Perm() == 0o755 && owned(stat) }

func (f file) locked(do func() error) error {
	path := filepath.Join(f.dir(), ".devinfo.lock")
	const limit = 10 * time.Second // for another installer
	lock, err := store.LockFile(context.Background(), path, limit)
	if err != nil {
		return f.denied(err)
	}
	defer lock.Close()
	defer os.Remove(path) // a waiting installer then creates a new lock file
	return f.denied(do())
}

// remove removes the file, its mark and temporary files of killed writers. Missing files, or a missing
// directory, are not an error. The mark is removed last, so that a removal that was interrupted can be
// repeated.
func (f file) remove() error {
	if _, err := os.Stat(f.dir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.locked(func() error {
		for _, path := range []file{f, f.agentMark()} {
			if err := store.Remove(string(path)); err != nil {
				return err
			}
		}
		return store.SyncDir(f.dir())
	})
}

const largest = 1 << 30 // size of a program

// removeUnchanged removes the file if it has the checksum in a mark.
func (f file) removeUnchanged(mark file) (removed bool, err error) {
	sum, err := mark.sum()
	if sum == "" {
		return false, err
	}
	has, err := store.ReadFile(string(f), largest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, f.remove()
	case err != nil:
		return false, err
	case checksum(has) != sum:
		return false, nil
	}
	return true, f.remove()
}

func checksum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// denied adds a remedy to the permission error that root gets in a directory of another user, such as
// Kubespray's /opt/cni/bin, if it lacks CAP_DAC_OVERRIDE. The new error does not match fs.ErrPermission,
// because callers would add a less specific hint to such an error.
func (f file) denied(err error) error {
	if !errors.Is(err, syscall.EACCES) || os.Geteuid() != 0 {
		return err
	}
	stat, statErr := os.Stat(f.dir())
	if statErr != nil || owned(stat) {
		return err
	}
	return fmt.Errorf("%v: %s belongs to user %d: make root its owner, or give this program CAP_DAC_OVERRIDE (agent.dacOverride=true in the chart)",
		err, f.dir(), stat.Sys().(*syscall.Stat_t).Uid)
}

// selinux is the extended attribute that contains the SELinux label of a file, see selinux(8).
const selinux = "security.selinux"

// inherit sets the SELinux label of a file to that of dir, if dir has one. Otherwise a file that a
// container creates may get the label of the container, and the runtime may not be allowed to run it.
func inherit(f *os.File, dir string) error {
	want, err := label(func(to []byte) (int, error) { return unix.Getxattr(dir, selinux, to) })
	if err == nil && want != nil {
		var has []byte
		has, err = label(func(to []byte) (int, error) { return unix.Fgetxattr(int(f.Fd()), selinux, to) })
		if err == nil && !bytes.Equal(has, want) {
			err = unix.Fsetxattr(int(f.Fd()), selinux, want, 0)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: cannot set the SELinux label of %s, %q: %w: allow the agent to relabel, or run restorecon on the node",
			f.Name(), dir, bytes.TrimRight(want, "\x00"), err)
	}
	return nil
}

// label reads a label. It returns nil if the file or the kernel has none.
func label(read func(to []byte) (int, error)) ([]byte, error) {
	text := make([]byte, 4096) // longer than the labels of any policy
	n, err := read(text)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return text[:n], nil
}

// errForeign is the error for a file that no agent has installed.
var errForeign = errors.New("was not installed by an agent")

// keep gives the file this content and mode, with the mark of an agent. It may be called often, because it does not write a
// file that has them. Without overwrite it leaves a file with other content alone unless an agent has installed it, and
// returns errForeign. The warning is an error of setting the SELinux label.
func (f file) keep(data []byte, mode fs.FileMode, overwrite bool) (state string, warning, err error) {
	has, err := store.ReadFile(string(f), largest)
	absent, same := errors.Is(err, fs.ErrNotExist), err == nil && bytes.Equal(has, data)
	if !absent && !same && !overwrite {
		if marked, err := f.marked(); err != nil || !marked {
			return "", nil, cmp.Or(err, errForeign)
		}
	}
	if err := f.mark(f.agentMark(), checksum(data)); err != nil {
		return "", nil, err
	}
	if stat, err := os.Lstat(string(f)); same && err == nil && stat.Mode() == mode && owned(stat) {
		return AlreadyThere, nil, nil
	}
	if warning, err = f.put(data, mode); err != nil {
		return "", nil, err
	}
	if absent {
		return Installed, warning, nil
	}
	return Replaced, warning, nil
}

// Program copies an executable that is not a plugin to a path of the node. It returns an error if path is an unmarked file
// with other content. The warning is an error of setting the SELinux label.
func Program(from, path string) (warning, err error) {
	want, err := store.ReadFile(from, largest)
	if err != nil {
		return nil, err
	}
	fromStat, _ := os.Stat(from)
	toStat, _ := os.Stat(path) // nil is not the same file as any other
	if os.SameFile(fromStat, toStat) {
		return nil, nil
	}
	_, warning, err = file(path).keep(want, 0o755, false)
	if errors.Is(err, errForeign) {
		err = fmt.Errorf("%s is a different program: move it away", path)
	}
	return warning, err
}

// RemoveProgram removes the program at path and its mark if [Program] installed it, else nothing.
func RemoveProgram(path string) error {
	to := file(path)
	marked, err := to.marked()
	if marked {
		err = to.remove()
	}
	return err
}
