package journal

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/safefile"
)

// Sweep removes leases whose record is missing, claim records that are corrupt or of another boot, libcni's
// caches of deleted attachments, and temporary files of killed writers. It calls removed with each path,
// relative to the state directory. It does not read entries, because that would take long on a node with many
// attachments. After a failure it continues with the rest.
func (j *Journal) Sweep(removed func(path string)) error {
	in := func(dir string) func(string) { return func(name string) { removed(dir + "/" + name) } }
	errs := []error{j.entries.Sweep(in(entriesDir)), j.claims.Sweep(in(claimsDir)), j.sweepCache(in("libcni"))}
	return errors.Join(append(errs, j.sweepClaims(removed), j.sweepLeases(removed))...)
}

// sweepClaims removes claim records that are corrupt or of another boot.
func (j *Journal) sweepClaims(removed func(path string)) error {
	records, err := j.Claims()
	errs := []error{err}
	for _, record := range records {
		err := j.keep(record)
		if err == nil {
			err = j.ReleaseIf(record, func() error { return j.keep(record) })
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

// keep returns the reason to keep a claim's record: errKept, or the failure to read it. It returns nil if the
// record can be removed.
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

// sweepLeases removes links to missing records, and directories that become empty.
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

// stale returns the paths of a thing's links to missing records, relative to the state directory, and the
// number of all its links.
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

// Stale returns the paths of all links to missing records, relative to the state directory.
func (j *Journal) Stale() (list []string, err error) {
	things, err := j.leases.things()
	errs := []error{err}
	for _, l := range things {
		paths, _, err := j.stale(l)
		list, errs = append(list, paths...), append(errs, err)
	}
	return list, errors.Join(errs...)
}

// Cache returns the directory for libcni's files while it runs the attachment's delegates.
func (j *Journal) Cache(k Key) string {
	name, err := k.entry()
	if err != nil { // GC and STATUS have no container, so libcni writes no files for them
		name = "none"
	}
	return filepath.Join(j.dir, "libcni", name)
}

// sweepCache removes the caches of attachments without an entry.
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
