// Package install keeps two files on a node: the plugin's executable, in the directory where the container
// runtime looks for plugins, and the node's settings. Each file is replaced atomically. If an installation
// is refused, the existing file remains and the error contains the reason.
//
// An agent marks each file that it installs with a checksum file beside it, .<name>.sha256, in the format
// of sha256sum(1). The agent restores a marked file after any change and may remove it. [Plugin] and
// [Settings] document how they treat unmarked files.
package install

import (
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

	"devinfo-cni.io/devinfo/atomicfile"
	"devinfo-cni.io/pkg/safefile"
)

// file is the absolute path of a file on the node.
type file string

func (f file) dir() string      { return filepath.Dir(string(f)) }
func (f file) name() string     { return filepath.Base(string(f)) }
func (f file) markPath() string { return filepath.Join(f.dir(), "."+f.name()+".sha256") }

// driverMark returns the path of the mark of cni-dra-driver. It does not make an agent restore the file.
func (f file) driverMark() file {
	return file(filepath.Join(f.dir(), "."+f.name()+".cni-dra-driver.sha256"))
}

// sum returns the checksum in the mark, or "" if the mark is missing or invalid.
func (f file) sum() string { return sumIn(f.markPath()) }

func sumIn(mark string) string {
	data, err := os.ReadFile(mark)
	sum, _, ok := strings.Cut(string(data), " ")
	if err != nil || !ok || len(sum) != 2*sha256.Size {
		return ""
	}
	return sum
}

// marked reports whether an agent has installed the file.
func (f file) marked() bool { return f.sum() != "" }

// mark records that an agent has installed the file with this checksum, or is about to.
func (f file) mark(sum string) error {
	if f.sum() == sum {
		return nil
	}
	return f.putSum(f.markPath(), sum)
}

func (f file) putSum(mark, sum string) error {
	_, err := file(mark).put([]byte(sum+"  "+f.name()+"\n"), 0o644)
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
		_, err := atomicfile.Replace(f.beside(), f.name(), func(temp *os.File) error {
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
		return f.beside().Sync()
	})
	return warning, err
}

// owned reports whether the file belongs to the current user.
func owned(stat fs.FileInfo) bool {
	s, ok := stat.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) == os.Geteuid()
}

// safeMode reports whether all users can run the file and only its owner, the current user, can write to it.
func safeMode(stat fs.FileInfo) bool { return stat.Mode().Perm() == 0o755 && owned(stat) }

// locked calls do with an exclusive lock on the file's directory, which must exist.
func (f file) locked(do func() error) error {
	if _, err := os.Stat(f.dir()); err != nil {
		return err
	}
	path := filepath.Join(f.dir(), ".devinfo.lock")
	lock, err := safefile.LockFile(context.Background(), path, lockLimit)
	if err != nil {
		return f.denied(err)
	}
	defer lock.Close()
	defer os.Remove(path) // a waiting installer then creates a new lock file
	return f.denied(do())
}

// lockLimit is the longest wait for another installer.
const lockLimit = 10 * time.Second

// beside gives access to the files in the file's directory.
func (f file) beside() safefile.Files { return safefile.Files(f.dir()) }

// remove removes the file, its mark and temporary files of killed writers. Missing files, or a missing
// directory, are not an error. The mark is removed last, so that a removal that was interrupted can be
// repeated.
func (f file) remove() error {
	if _, err := os.Stat(f.dir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.locked(func() error {
		for _, name := range []string{f.name(), filepath.Base(f.markPath())} {
			if _, err := atomicfile.RemoveLeftover(f.beside(), name); err != nil {
				return err
			}
			if err := f.beside().Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return f.beside().Sync()
	})
}

func checksum(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// Intact reports whether a file matches the checksum in its mark. An unmarked file is intact.
func Intact(path string) (bool, error) {
	sum := file(path).sum()
	if sum == "" {
		return true, nil
	}
	has, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return checksum(has) == sum, err
}

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
