package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/safefile"
)

// Sweep removes what no entry names and nobody is about to name: leases without a holder,
// records of claims of another boot, what libcni kept of attachments that are gone, and
// temporary files of dead writers. It calls removed with the path of each, relative to the
// state directory. It reads no entries, so it takes no longer than listing the directories. A
// failure does not stop the rest.
func (j *Journal) Sweep(removed func(path string)) error {
	in := func(dir string) func(string) { return func(name string) { removed(dir + "/" + name) } }
	errs := []error{j.entries.Sweep(in(entriesDir)), j.claims.Sweep(in(claimsDir)), j.sweepCache(in("libcni"))}
	return errors.Join(append(errs, j.sweepClaims(removed), j.sweepLeases(removed))...)
}

// sweepClaims removes the records of claims that are of another boot, or torn.
func (j *Journal) sweepClaims(removed func(path string)) error {
	records, err := j.Claims()
	errs := []error{err}
	for _, record := range records {
		err := j.keep(record)
		if err == nil {
			err = j.LetGoIf(record, func() error { return j.keep(record) })
		}
		if err == nil {
			removed("claims/" + record)
		} else if !errors.Is(err, errKept) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

var errKept = errors.New("record of the current boot")

// keep is why the record of a claim stays: errKept, or it cannot be read; nil = it may go.
func (j *Journal) keep(record string) error {
	c, err := j.Claim(record)
	switch {
	case errors.As(err, new(*store.CorruptError)):
		return nil
	case errors.As(err, new(*FormatError)), c != nil:
		return errKept
	}
	return err
}

// sweepLeases removes the links that lead nowhere, and the directories that are empty then.
func (j *Journal) sweepLeases(removed func(path string)) error {
	things, err := j.leases.things()
	errs := []error{err}
	for _, l := range things {
		stale, links, err := j.stale(l)
		if err != nil || len(stale) == 0 && links > 0 {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, j.alone(func() error {
			if stale, _, err = j.stale(l); err != nil {
				return err
			}
			for _, path := range stale {
				if err := os.Remove(filepath.Join(j.dir, path)); err != nil {
					return err
				}
				removed(path)
			}
			return rmdir(j.leases.place(l))
		}))
	}
	return errors.Join(errs...)
}

// stale lists the links of a thing that lead to no holder, by their paths from the state
// directory, and counts all.
func (j *Journal) stale(l lease) (paths []string, links int, err error) {
	list, err := j.leases.of(l)
	for _, link := range list {
		holder := j.claims.Path(link.holder)
		if _, ok := parseKey(link.holder); ok {
			holder = j.entries.Path(link.holder)
		}
		if notThere(holder) {
			paths = append(paths, strings.TrimPrefix(link.path, j.dir+"/"))
		}
	}
	return paths, len(list), err
}

// Stale lists the leases without a holder, by their paths from the state directory.
func (j *Journal) Stale() (list []string, err error) {
	things, err := j.leases.things()
	errs := []error{err}
	for _, l := range things {
		paths, _, err := j.stale(l)
		list, errs = append(list, paths...), append(errs, err)
	}
	return list, errors.Join(errs...)
}

// Cache is where libcni may keep what it likes while it runs the attachment's delegates.
func (j *Journal) Cache(k Key) string {
	name, err := k.entry()
	if err != nil { // of a network alone, for GC and STATUS, of which libcni keeps nothing
		name = "none"
	}
	return filepath.Join(j.dir, "libcni", name)
}

// sweepCache removes the caches of attachments that are not on record.
func (j *Journal) sweepCache(removed func(name string)) error {
	dir := safefile.Open(filepath.Join(j.dir, "libcni"))
	caches, err := dir.Entries()
	errs := []error{err}
	for _, c := range caches {
		if notThere(j.entries.Path(c.Name())) {
			err := os.RemoveAll(dir.Path(c.Name()))
			if err == nil {
				removed(c.Name())
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
