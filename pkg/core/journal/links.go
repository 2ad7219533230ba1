package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"devinfo-cni.io/pkg/host/store"
)

// sharedMark begins the name of a shared lease's link. A lease is a link to the record of its holder:
// leases/<kind>/<id>/<holder> if it is exclusive, leases/<kind>/<id>/~<holder> if it is shared. The mark sorts
// after every name of a holder, so a directory lists the exclusive lease first.
const sharedMark = "~"

// links is the directory of all leases, stale ones included. One lock guards all links: with separate locks,
// one process could lease a PF while another leases its VF.
type links struct{ *store.Dir }

type leaseLink struct {
	Mode         SharingMode
	path, holder string
}

func (d links) place(l lease) string { return d.Path(string(l.kind) + "/" + escape(l.ID)) }

func (d links) path(l lease, holder string) string {
	if l.Mode == Shared {
		holder = sharedMark + holder
	}
	return d.place(l) + "/" + holder
}

// of returns the links of a thing, the exclusive one first.
func (d links) of(l lease) (list []leaseLink, err error) {
	entries, err := os.ReadDir(d.place(l))
	if err != nil && !absent(err) {
		return nil, err
	}
	for _, e := range entries {
		link := leaseLink{Exclusive, d.place(l) + "/" + e.Name(), e.Name()}
		if holder, shared := strings.CutPrefix(e.Name(), sharedMark); shared {
			link.Mode, link.holder = Shared, holder
		}
		if e.Type() != fs.ModeSymlink {
			return nil, fmt.Errorf("%s: not a lease (must be a symbolic link): remove it", link.path)
		}
		list = append(list, link)
	}
	return list, nil
}

// ids returns the IDs of all things of a kind.
func (d links) ids(kind Kind) (ids []string, err error) {
	entries, err := os.ReadDir(d.Path(string(kind)))
	if absent(err) {
		err = nil
	}
	for _, e := range entries {
		ids = append(ids, unescape(e.Name()))
	}
	return ids, err
}

// things returns the things of all kinds, each as a lease without a mode. It skips a kind that it cannot read
// and returns the error.
func (d links) things() (list []lease, err error) {
	for _, kind := range kinds {
		ids, unread := d.ids(kind)
		err = errors.Join(err, unread)
		for _, id := range ids {
			list = append(list, lease{kind, DeviceLease{ID: id}})
		}
	}
	return list, err
}

func (d links) add(by holderLinks, stale []string) error {
	for _, path := range stale {
		if err := os.Remove(path); err != nil && !absent(err) { // two leases may have listed the same link
			return err
		}
	}
	var made []lease
	for _, l := range by.leases {
		made = append(made, l)
		dir, name := filepath.Split(d.path(l, by.link))
		err := store.Private(dir).Link(name, "../../../"+by.target)
		if errors.Is(err, fs.ErrExist) {
			made, err = made[:len(made)-1], nil
		}
		if err != nil {
			_ = d.remove(by.link, made) // report the first error
			return fmt.Errorf("lease of %s %s: %w", l.kind, l.ID, err)
		}
	}
	return nil
}

// restore adds the links of leases that must not be lost by a failure, each as far as it can.
func (d links) restore(by holderLinks, leases []lease) {
	for _, l := range leases {
		by.leases = []lease{l}
		_ = d.add(by, nil) // the caller has an error to report
	}
}

// remove removes the links of leases and the directories that become empty. A missing link is not an error, even
// on a read-only disk or if the ID is too long for a link. The caller must hold the lock of all leases.
func (d links) remove(holder string, leases []lease) error {
	for _, l := range leases {
		if path := d.path(l, holder); !notThere(path) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if err := rmdir(d.place(l)); err != nil {
			return err
		}
	}
	return nil
}

// escape turns an ID, which may be a path, into one path element.
func escape(id string) string {
	return strings.ReplaceAll(strings.ReplaceAll(id, "%", "%25"), "/", "%2F")
}

func unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "%2F", "/"), "%25", "%")
}

func rmdir(path string) error {
	err := syscall.Rmdir(path)
	if errors.Is(err, syscall.EROFS) { // whatever the directory has; one that is empty is left over
		if there, err := os.ReadDir(path); err != nil || len(there) > 0 {
			return nil
		}
	}
	if err == nil || absent(err) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return &fs.PathError{Op: "rmdir", Path: path, Err: err}
}

func notThere(path string) bool {
	_, err := os.Lstat(path)
	return absent(err)
}

// absent reports whether err means that a path does not or cannot exist.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

// Sweep removes leases whose record is missing, claim records of another boot, libcni's caches of deleted attachments,
// and temporary files of killed writers. It calls removed with each path, relative to the state directory. It does not
// read entries, because that would take long on a node with many attachments. After a failure it continues with the
// rest.
func (j *Journal) Sweep(removed func(path string)) error {
	if err := j.readable(); err != nil {
		return err
	}
	in := func(dir string) func(string) { return func(name string) { removed(dir + "/" + name) } }
	errs := []error{j.entries.Sweep(in(entriesDir)), j.claims.Sweep(in(claimsDir)), j.sweepCache(in(Caches))}
	return errors.Join(append(errs, j.sweepClaims(removed), j.sweepLeases(removed))...)
}

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
	case errors.As(err, new(*store.CorruptError)) && !j.claims.writtenThisBoot(record):
		return nil
	case errors.As(err, new(*store.CorruptError)), errors.As(err, new(*FormatError)), c != nil:
		return errKept
	}
	return err
}

func (j *Journal) sweepLeases(removed func(path string)) error {
	things, err := j.leases.things()
	errs := []error{err}
	for _, l := range things {
		stale, links, err := j.stale(l)
		if err != nil || len(stale) == 0 && links > 0 {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, j.Alone(func() error {
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

// Cache returns the directory for libcni's files while it runs the attachment's delegates.
func (j *Journal) Cache(k Key) string {
	name, err := k.entry()
	if err != nil { // GC and STATUS have no container, so libcni writes no files for them
		name = "none"
	}
	return filepath.Join(j.dir, Caches, name)
}

func (j *Journal) sweepCache(removed func(name string)) error {
	dir := store.Private(filepath.Join(j.dir, Caches))
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
