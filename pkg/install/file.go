// Package install keeps two files on a node, whole at every moment: the plugin's
// executable in the directory that the container runtime starts plugins from, and the
// node's settings. It says by an error what it refuses, and leaves what is there.
//
// What an agent has put in place it marks by a checksum beside it, .<name>.sha256, as
// sha256sum(1) prints it. A marked file is the agent's: it is put in place again whatever
// becomes of it, and may be removed. One without is somebody else's.
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

// file is a file of the node, by its absolute path.
type file string

func (f file) dir() string      { return filepath.Dir(string(f)) }
func (f file) name() string     { return filepath.Base(string(f)) }
func (f file) markPath() string { return filepath.Join(f.dir(), "."+f.name()+".sha256") }

// sum gives the checksum in the mark; "" = there is no mark that makes sense.
func (f file) sum() string {
	data, err := os.ReadFile(f.markPath())
	sum, _, ok := strings.Cut(string(data), " ")
	if err != nil || !ok || len(sum) != 2*sha256.Size {
		return ""
	}
	return sum
}

// marked says that an agent has put the file in place.
func (f file) marked() bool { return f.sum() != "" }

// mark marks the file as an agent's, with the checksum of what it holds, or is about to.
func (f file) mark(sum string) error {
	if f.sum() == sum {
		return nil
	}
	_, err := file(f.markPath()).put([]byte(sum+"  "+f.name()+"\n"), 0o644)
	return err
}

// put puts data in the place of what the file held, at once: a half one must not survive a power
// failure under the final name. The warning is that the file could not be given the label of its
// directory. A program that is forked meanwhile would hold the file open for writing, and for a
// moment the plugin could not be run (ETXTBSY): so none is.
func (f file) put(data []byte, mode fs.FileMode) (warning, err error) {
	err = f.alone(func() error {
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

func owned(stat fs.FileInfo) bool {
	s, ok := stat.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) == os.Geteuid()
}

// sound says that nobody else can write to a plugin, and that it can be run.
func sound(stat fs.FileInfo) bool { return stat.Mode().Perm() == 0o755 && owned(stat) }

// alone calls do while no other installer works in the file's directory, which must exist.
func (f file) alone(do func() error) error {
	if _, err := os.Stat(f.dir()); err != nil {
		return err
	}
	path := filepath.Join(f.dir(), ".devinfo.lock")
	lock, err := safefile.LockFile(context.Background(), path, lockLimit)
	if err != nil {
		return f.denied(err)
	}
	defer lock.Close()
	defer os.Remove(path) // who waits for it then makes another
	return f.denied(do())
}

// lockLimit bounds the wait for another installer.
const lockLimit = 10 * time.Second

// beside are the files of its directory.
func (f file) beside() safefile.Files { return safefile.Files(f.dir()) }

// remove removes the file, its mark and what a killed writer has left; what is gone
// already, be it with its directory, is success. The mark goes last: it says whose the file was.
func (f file) remove() error {
	if _, err := os.Stat(f.dir()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return f.alone(func() error {
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

// Intact says whether a file is as an agent has put it in place, which its mark tells. One
// that has no mark is nobody's to alter, and intact.
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

// denied says what helps root who may not write to the directory, for it is somebody else's, as
// Kubespray's /opt/cni/bin is: without CAP_DAC_OVERRIDE root is nobody there. As that is why, it is no
// fs.ErrPermission any more, of which others say what may be why.
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
