// Package install keeps two files on a node, whole at every moment: the plugin's
// executable in the directory that the container runtime starts plugins from, and the
// node's settings. It says by an error what it refuses, and leaves what is there.
//
// What an agent has put in place it marks by a checksum beside it, .<name>.sha256, as
// sha256sum(1) prints it. A marked file is the agent's: it is put in place again whatever
// becomes of it, and may be removed. One without is somebody else's.
package install

import (
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
)

// file is a file of the node, by its absolute path.
type file string

func (f file) dir() string  { return filepath.Dir(string(f)) }
func (f file) name() string { return filepath.Base(string(f)) }
func (f file) mark() string { return filepath.Join(f.dir(), "."+f.name()+".sha256") }
func (f file) temp() string { return filepath.Join(f.dir(), "."+f.name()+".new") }

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
		_, err := file(f.mark()).write(strings.NewReader(sum+"  "+f.name()+"\n"), 0o644)
		return err
	})
}

// put puts content in the place of what the file held, at once: a half one must not
// survive a power failure under the final name. It has that checksum, else nothing is
// changed. The warning is that the file could not be given the label of its directory.
func (f file) put(content io.Reader, sum string, mode fs.FileMode) (warning, err error) {
	err = f.alone(func() error {
		got := sha256.New()
		warning, err = f.fill(io.TeeReader(content, got), mode)
		if err == nil && fmt.Sprintf("%x", got.Sum(nil)) != sum {
			err = fmt.Errorf("%s: what was to be put there changes while it is read", f)
		}
		return f.finish(err)
	})
	return warning, err
}

func (f file) write(content io.Reader, mode fs.FileMode) (warning, err error) {
	warning, err = f.fill(content, mode)
	return warning, f.finish(err)
}

// finish gives the temporary file its name, or removes it.
func (f file) finish(err error) error {
	if err == nil {
		err = os.Rename(f.temp(), string(f))
	}
	if err != nil {
		_ = os.Remove(f.temp()) // it is the first error that tells
		return err
	}
	return syncDir(f.dir())
}

// fill writes the temporary file. A program that is forked meanwhile would hold it open
// for writing, and for a moment the plugin could not be run (ETXTBSY): so none is.
func (f file) fill(content io.Reader, mode fs.FileMode) (warning, err error) {
	if err := os.Remove(f.temp()); err != nil && !errors.Is(err, fs.ErrNotExist) { // a killed writer's
		return nil, err
	}
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	temp, err := os.OpenFile(f.temp(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(temp, content)
	for _, step := range []func() error{
		func() error { return temp.Chmod(mode) },
		func() error { warning = inherit(temp, f.dir()); return nil },
		temp.Sync,
	} {
		if err == nil {
			err = step()
		}
	}
	return warning, errors.Join(err, temp.Close())
}

func owned(stat fs.FileInfo) bool {
	s, ok := stat.Sys().(*syscall.Stat_t)
	return !ok || int(s.Uid) == os.Geteuid()
}

// sound says that nobody else can write to a plugin, and that it can be run.
func sound(stat fs.FileInfo) bool { return stat.Mode().Perm() == 0o755 && owned(stat) }

// alone calls f while no other installer works in the directory. Its descriptor is
// locked, so nothing has to be made.
func (f file) alone(do func() error) error {
	dir, err := os.Open(f.dir())
	if err != nil {
		return err
	}
	defer dir.Close() // and with it the lock
	const tries, pause = 100, 100 * time.Millisecond
	for n := 1; ; n++ {
		err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return do()
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || n == tries {
			return fmt.Errorf("%s: lock: %w: does another installer hang?", f.dir(), err)
		}
		time.Sleep(pause)
	}
}

// remove removes the file, its mark and what a killed writer has left; what is gone
// already is success. The mark goes last: it says whose the file was.
func (f file) remove() error {
	return f.alone(func() error {
		for _, path := range []string{f.temp(), string(f), file(f.mark()).temp(), f.mark()} {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return syncDir(f.dir())
	})
}

// syncDir makes a rename in dir outlast a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
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
