package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// A claim is the link files/<file> to the entry of the attachment that recorded
// the file. It counts while that entry is of this boot and names the file; until
// then, and from then on, whoever comes first may replace it. Claims are changed
// only by the holder of the file's lock, hence never while their entry is still
// being written.

const toEntry = "../attachments/"

// OwnedError says that a device-info file is recorded for another attachment.
type OwnedError struct {
	File  string // name in the device-info directory
	Owner Key
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("device-info file %s: belongs to attachment %s", e.File, e.Owner)
}

// Owner tells in O(1) who recorded a file of the device-info directory. Of no
// account are attachments of another boot, and those whose entry is gone or
// corrupt: entries are written at once, so only a power failure tears them.
func (j *Journal) Owner(file string) (Key, bool, error) {
	link, err := j.files.Readlink(file)
	if errors.Is(err, fs.ErrNotExist) {
		return Key{}, false, nil
	}
	if err != nil {
		return Key{}, false, err
	}
	return j.owner(file, link)
}

func (j *Journal) owner(file, link string) (Key, bool, error) {
	k, ok := parseKey(strings.TrimPrefix(link, toEntry))
	if !ok {
		return Key{}, false, nil
	}
	e, err := j.getSound(k)
	if err != nil || e == nil || e.BootID != j.bootID || e.File != file {
		return Key{}, false, err
	}
	return k, true, nil
}

// claim makes the file ours and then calls write, which writes the entry. If
// that fails a claim made just now is undone.
func (j *Journal) claim(k Key, file string, write func() error) error {
	return j.files.Locked(file, func(files *os.Root) error {
		made, err := j.link(files, k, file)
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
func (j *Journal) link(files *os.Root, k Key, file string) (made bool, err error) {
	link, err := files.Readlink(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, wrap(file, err)
	case link == target(k):
		return false, nil
	default:
		owner, owned, err := j.owner(file, link)
		if err != nil {
			return false, err
		}
		if owned {
			return false, &OwnedError{file, owner}
		}
		if err := files.Remove(file); err != nil {
			return false, wrap(file, err)
		}
	}
	if err := files.Symlink(target(k), file); err != nil {
		return false, wrap(file, err)
	}
	return true, nil
}

// release removes the claim unless it is, by now, somebody else's.
func (j *Journal) release(k Key, file string) error {
	return j.files.Locked(file, func(files *os.Root) error {
		link, err := files.Readlink(file)
		if err == nil && link == target(k) {
			err = files.Remove(file)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return wrap(file, err)
	})
}

func target(k Key) string {
	entry, _ := k.entry() // k was checked by Put or Drop
	return toEntry + entry
}

func wrap(file string, err error) error {
	return fmt.Errorf("claim of device-info file %s: %w", file, err)
}
