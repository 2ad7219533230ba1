package journal

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// Sweep removes what no entry names and nobody is about to name: claims without an entry,
// and temporary files of dead writers. It calls removed with the path of each, relative to
// the state directory. It reads no entries, so it takes no longer than listing the
// directories. A failure does not stop the rest.
func (j *Journal) Sweep(removed func(path string)) error {
	names, err := j.entries.Names()
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	in := func(dir string) func(string) { return func(name string) { removed(dir + "/" + name) } }
	return errors.Join(
		j.entries.Sweep(in("attachments")),
		j.held.Sweep(in("held")),
		j.files.sweep(there, in("files")),
		j.specs.sweep(there, in("cdi")),
		j.sweepSockets(there, in("sockets")))
}

// sweep removes the claims whose entry is not among those that were there, and is not
// there now; and the lock files that builds before format 2 have left.
func (c claims) sweep(there map[string]bool, removed func(name string)) error {
	errs := []error{c.dir.Sweep(removed)}
	entries, err := c.dir.Entries()
	errs = append(errs, err)
	for _, e := range entries {
		if e.Type() != fs.ModeSymlink {
			continue
		}
		gone, err := c.drop(e.Name(), there)
		if gone {
			removed(e.Name())
		}
		errs = append(errs, c.wrap(e.Name(), err))
	}
	return errors.Join(errs...)
}

// drop removes a claim that leads to no entry.
func (c claims) drop(file string, there map[string]bool) (gone bool, err error) {
	if gone, err = c.dangling(file, there); err != nil || !gone {
		return false, err
	}
	err = c.dir.Alone(func() error {
		if gone, err = c.dangling(file, nil); err != nil || !gone {
			return err
		}
		return c.dir.Unlink(file)
	})
	return gone && err == nil, err
}

// dangling says that there is a claim that leads to no entry.
func (c claims) dangling(file string, there map[string]bool) (bool, error) {
	link, err := c.dir.Readlink(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	entry := strings.TrimPrefix(link, toEntry)
	if _, ok := parseKey(entry); !ok { // nobody's
		return true, nil
	}
	return c.gone(entry, there)
}

// gone says that an entry is not among those that were there, and is not there now.
func (j *Journal) gone(entry string, there map[string]bool) (bool, error) {
	if there[entry] {
		return false, nil
	}
	_, err := os.Lstat(j.entries.Path(entry))
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// sweepSockets does the same for socket directories.
func (j *Journal) sweepSockets(there map[string]bool, removed func(name string)) error {
	dirs, err := j.sockets().Entries()
	if err != nil || len(dirs) == 0 {
		return err
	}
	return j.sockets().Alone(func() error {
		var errs []error
		for _, d := range dirs {
			if d.IsDir() {
				errs = append(errs, j.sweepUsers(d.Name(), there, removed))
			}
		}
		return errors.Join(errs...)
	})
}

func (j *Journal) sweepUsers(dir string, there map[string]bool, removed func(name string)) error {
	users, err := j.sockets().Sub(dir)
	if err != nil {
		return err
	}
	links, err := users.Entries()
	if err != nil {
		return err
	}
	left := len(links)
	for _, u := range links {
		gone, err := j.gone(u.Name(), there)
		if gone && err == nil {
			err = users.Unlink(u.Name())
		}
		if err != nil {
			return err
		}
		if gone {
			left--
			removed(dir + "/" + u.Name())
		}
	}
	if left > 0 {
		return nil
	}
	return dropSockets(users)
}
