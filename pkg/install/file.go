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
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/private"
)

// file is a file of the node, by its absolute path.
type file string

func (f file) dir() string  { return filepath.Dir(string(f)) }
func (f file) name() string { return filepath.Base(string(f)) }
func (f file) mark() string { return filepath.Join(f.dir(), "."+f.name()+".sha256") }

// sum gives the checksum in the mark; "" = there is no mark that makes sense.
func (f file) sum() string {
	data, err := os.ReadFile(f.mark())
	sum, _, ok := strings.Cut(string(data), " ")
	if err != nil || !ok || len(sum) != 2*sha256.Size {
		return ""
	}
	return sum
}

// marked says that an agent has put the file in place.
func (f file) marked() bool { return f.sum() != "" }

// adopt marks the file as an agent's, with the checksum of what it holds, or is about to.
func (f file) adopt(sum string) error {
	if f.sum() == sum {
		return nil
	}
	return f.alone(func() error {
		_, err := file(f.mark()).replace(strings.NewReader(sum+"  "+f.name()+"\n"), 0o644, func() error { return nil })
		return err
	})
}

// put puts content in the place of what the file held. It has that checksum, else nothing is
// changed. The warning is that the file could not be given the label of its directory.
func (f file) put(content io.Reader, sum string, mode fs.FileMode) (warning, err error) {
	got := sha256.New()
	err = f.alone(func() error {
		warning, err = f.replace(io.TeeReader(content, got), mode, func() error {
			if fmt.Sprintf("%x", got.Sum(nil)) != sum {
				return fmt.Errorf("%s: what was to be put there changes while it is read", f)
			}
			return nil
		})
		return err
	})
	return warning, err
}

// replace puts content in place if that is right, at once: a half one must not survive a
// power failure under the final name. A program that is forked meanwhile would hold it open
// for writing, and for a moment the plugin could not be run (ETXTBSY): so none is.
func (f file) replace(content io.Reader, mode fs.FileMode, right func() error) (warning, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	_, err = store.Replace(f.beside(), f.name(), func(temp *os.File) error {
		defer temp.Close()
		_, err := io.Copy(temp, content)
		for _, step := range []func() error{
			right,
			func() error { return temp.Chmod(mode) },
			func() error { warning = inherit(temp, f.dir()); return nil },
			temp.Sync,
		} {
			if err == nil {
				err = step()
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return warning, f.beside().Sync()
}

func owned(stat fs.FileInfo) bool {
	s, ok := stat.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) == os.Geteuid()
}

// sound says that nobody else can write to a plugin, and that it can be run.
func sound(stat fs.FileInfo) bool { return stat.Mode().Perm() == 0o755 && owned(stat) }

// alone calls do while no other installer works on the file, whose directory must exist.
func (f file) alone(do func() error) error {
	if _, err := os.Stat(f.dir()); err != nil {
		return err
	}
	path := filepath.Join(f.dir(), "."+f.name()+".lock")
	lock, err := private.LockFile(context.Background(), path, lockLimit)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer os.Remove(path) // who waits for it then makes another
	return do()
}

// lockLimit bounds the wait for another installer.
const lockLimit = 10 * time.Second

// beside are the files of its directory.
func (f file) beside() private.Files { return private.Files(f.dir()) }

// remove removes the file, its mark and what a killed writer has left; what is gone
// already is success. The mark goes last: it says whose the file was.
func (f file) remove() error {
	return f.alone(func() error {
		for _, name := range []string{f.name(), filepath.Base(f.mark())} {
			if _, err := store.RemoveLeftover(f.beside(), name); err != nil {
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
	f := file(path)
	sum := f.sum()
	if sum == "" {
		return true, nil
	}
	has, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	defer has.Close()
	got := sha256.New()
	_, err = io.Copy(got, has)
	return fmt.Sprintf("%x", got.Sum(nil)) == sum, err
}

// denied says what helps root who may not write to a directory, for it is somebody else's, as
// Kubespray's /opt/cni/bin is: without CAP_DAC_OVERRIDE root is nobody there.
func denied(dir string, err error) error {
	if !errors.Is(err, syscall.EACCES) || os.Geteuid() != 0 {
		return err
	}
	stat, statErr := os.Stat(dir)
	if statErr != nil || owned(stat) {
		return err
	}
	return fmt.Errorf("%w: %s belongs to user %d: give it to root, or this program CAP_DAC_OVERRIDE, as agent.dacOverride=true of the chart does",
		err, dir, stat.Sys().(*syscall.Stat_t).Uid)
}
