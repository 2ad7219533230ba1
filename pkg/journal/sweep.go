package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Sweep removes what no entry names and nobody is about to name: claims without an entry,
// caches of libcni, and temporary files of writers that are dead. It calls removed with the path of each,
// relative to the state directory. It reads no entries, so that it takes as long as
// listing the directories does.
func (j *Journal) Sweep(removed func(path string)) error {
	names, err := j.entries.Names()
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	errs := []error{j.entries.Sweep(func(name string) { removed("attachments/" + name) })}
	for kind, c := range map[string]claims{"files": j.files, "cdi": j.specs} {
		errs = append(errs, c.sweep(there, func(name string) { removed(kind + "/" + name) }))
	}
	errs = append(errs, j.sweepSockets(there, func(name string) { removed("sockets/" + name) }), j.sweepCaches(there, removed))
	return errors.Join(errs...)
}

// sweep removes the claims whose entry is not among those that were there, and is not
// there now.
func (c claims) sweep(there map[string]bool, removed func(name string)) error {
	entries, err := c.dir.Entries()
	for _, e := range entries {
		link, linkErr := c.dir.Readlink(e.Name())
		if linkErr != nil || there[filepath.Base(link)] {
			continue
		}
		gone := false
		err = errors.Join(err, c.wrap(e.Name(), c.dir.Alone(func() error {
			if dangling, err := c.dangling(e.Name()); err != nil || !dangling {
				return err
			}
			gone = true
			return c.dir.Unlink(e.Name())
		})))
		if gone {
			removed(e.Name())
		}
	}
	return err
}

func (c claims) dangling(file string) (bool, error) {
	_, err := os.Stat(c.dir.Path(file))
	if err == nil {
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Lstat(c.dir.Path(file))
		return err == nil, nil
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
		for _, d := range dirs {
			err = errors.Join(err, j.sweepUsers(d.Name(), there, removed))
		}
		return err
	})
}

func (j *Journal) sweepUsers(dir string, there map[string]bool, removed func(name string)) error {
	at := j.sockets().Path(dir)
	users, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	left := len(users)
	for _, u := range users {
		if there[u.Name()] {
			continue
		}
		if _, err := os.Stat(j.entries.Path(u.Name())); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.Remove(filepath.Join(at, u.Name())); err != nil {
			return err
		}
		left--
		removed(filepath.Join(dir, u.Name()))
	}
	if left > 0 {
		return nil
	}
	return os.Remove(at)
}

// sweepCaches removes the caches of attachments that have no entry.
func (j *Journal) sweepCaches(there map[string]bool, removed func(name string)) error {
	dir := filepath.Join(j.dir, cacheDir)
	caches, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, c := range caches {
		if there[c.Name()] {
			continue
		}
		if _, err := os.Lstat(j.entries.Path(c.Name())); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, c.Name())); err != nil {
			return err
		}
		removed(cacheDir + "/" + c.Name())
	}
	return err
}
