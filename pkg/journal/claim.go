package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"devinfo-cni.io/devinfo/store"
)

// A claim is the link files/<file> or cdi/<spec> to the entry of the attachment that
// recorded the file. It counts while that entry is of this boot and names the file;
// until then, and from then on, whoever comes first may replace it. Claims are
// changed only by the holder of the file's lock, hence never while their entry is
// still being written.
type claims struct {
	*Journal
	what string // "device-info file"
	dir  *store.Dir
	of   func(*Entry) string // the file that an entry names; "" = none
}

const toEntry = "../attachments/"

// OwnedError says that a file is recorded for another attachment.
type OwnedError struct {
	What  string // "device-info file" or "CDI spec"
	File  string // name in the device-info or the CDI directory
	Owner Key
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("%s %s: belongs to attachment %s", e.What, e.File, e.Owner)
}

// Owner tells in O(1) who recorded a file of the device-info directory. Of no
// account are attachments of another boot, and those whose entry is gone or
// corrupt: entries are written at once, so only a power failure tears them.
func (j *Journal) Owner(file string) (Key, bool, error) { return j.files.owner(file) }

// SpecOwner is Owner for the CDI specs.
func (j *Journal) SpecOwner(spec string) (Key, bool, error) { return j.specs.owner(spec) }

func (c claims) owner(file string) (Key, bool, error) {
	link, err := c.dir.Readlink(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, false, nil
	}
	if err != nil {
		return Key{}, false, err
	}
	return c.linked(file, link)
}

// linked is the owner of a file by the link that is there.
func (c claims) linked(file, link string) (Key, bool, error) {
	k, ok := parseKey(strings.TrimPrefix(link, toEntry))
	if !ok {
		return Key{}, false, nil
	}
	e, err := c.getSound(k)
	if err != nil || e == nil || e.BootID != c.bootID || c.of(e) != file {
		return Key{}, false, err
	}
	return k, true, nil
}

// claim makes the file that the entry names, if any, ours and then calls write, which
// writes the entry. If that fails a claim made just now is undone.
func (c claims) claim(e *Entry, write func() error) error {
	file := c.of(e)
	if file == "" {
		return write()
	}
	return c.dir.Locked(file, func(files *os.Root) error {
		made, err := c.link(files, e.Key, file)
		if err != nil {
			return err
		}
		if err = write(); err != nil && made {
			_ = files.Remove(file) // a claim without an entry is harmless
		}
		return err
	})
}

// link wants the lock. It tells whether it made the link or found it.
func (c claims) link(files *os.Root, k Key, file string) (made bool, err error) {
	link, err := files.Readlink(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, c.wrap(file, err)
	case link == target(k):
		return false, nil
	default:
		owner, owned, err := c.linked(file, link)
		if err != nil {
			return false, err
		}
		if owned {
			return false, &OwnedError{c.what, file, owner}
		}
		if err := files.Remove(file); err != nil {
			return false, c.wrap(file, err)
		}
	}
	if err := files.Symlink(target(k), file); err != nil {
		return false, c.wrap(file, err)
	}
	return true, nil
}

// releaseFormer removes the claim of an entry that is gone, or that another of the
// same attachment has replaced and that names another file.
func (c claims) releaseFormer(old, now *Entry) error {
	file := c.of(old)
	if file == "" || now != nil && c.of(now) == file {
		return nil
	}
	return c.release(old.Key, file)
}

// release removes the claim unless it is, by now, somebody else's.
func (c claims) release(k Key, file string) error {
	return c.dir.Locked(file, func(files *os.Root) error {
		link, err := files.Readlink(file)
		if err == nil && link == target(k) {
			err = files.Remove(file)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return c.wrap(file, err)
	})
}

func target(k Key) string {
	entry, _ := k.entry() // k was checked by Put or Drop
	return toEntry + entry
}

func (c claims) wrap(file string, err error) error {
	return fmt.Errorf("claim of %s %s: %w", c.what, file, err)
}
