// Package journal keeps a record on disk of what each attachment owns or may own. A record is written before
// any of its files and leases exist, and removed after them. DEL, GC, devinfoctl and the ADD after a killed
// one can therefore finish or undo the work without prevResult, the network namespace or the runtime.
//
// Leases record who owns a file or device. A lease counts while the record of its holder exists, is of the current
// boot and names the lease.
//
//	attachments/<network>@<containerID>@<ifName>   entry of an attachment, JSON
//	claims/<UID>                                   leases of the DRA driver's claim, JSON
//	libcni/<entry>/                                cache of libcni while an attachment's delegates run
//	leases/{file,spec,socket,device}/<id>/<holder> -> ../../../attachments/... or claims/...
//	leases/device/<id>/~<holder>                   the same, shared
//
// Reading, releasing and forgetting create no file on disk, not even a lock, so a full disk does not stop a DEL.
package journal

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// Journal is the state directory of one node. Its methods may be called concurrently, also from several processes.
type Journal struct {
	// SRIOVLocks is the directory of sriov-cni's allocation files; "" = ignore sriov-cni.
	SRIOVLocks string
	// NetnsGone reports whether a network namespace no longer exists; an error means unknown.
	NetnsGone func(path string) (bool, error)
	// OnNode reports whether processes have the numbers here that they had for ADD.
	OnNode   func() bool
	ClaimDir func() string // directory of cni-dra-driver's records, or "" for none
	// Show reads records that other users can change. It is for programs that only show them.
	Show bool

	bootID  string
	dir     string
	entries records
	claims  records
	leases  links
	driver  state.Netns
	owned   atomic.Bool // only root and this process's user can change the journal
}

// records is the directory of the records of all attachments, or of all claims.
type records struct{ *store.Dir }

const entriesDir, claimsDir = "attachments", "claims"

// Names for [Journal.Writable].
const SpecLeases, Caches = "leases/spec", "libcni"

func ClaimPath(stateDir, record string) string { return filepath.Join(stateDir, claimsDir, record) }

// Open returns the journal in a state directory, which must be an absolute path. It touches no file. The boot
// ID separates entries of this boot from older ones; see [BootID].
func Open(stateDir, bootID string) *Journal {
	in := func(name string) *store.Dir { return store.Private(filepath.Join(stateDir, name)) }
	return &Journal{
		NetnsGone: link.NetnsGone, OnNode: link.OnNode, ClaimDir: func() string { return state.NodeDir(stateDir) },
		bootID: bootID, dir: filepath.Clean(stateDir),
		entries: records{in(entriesDir)}, claims: records{in(claimsDir)}, leases: links{in("leases")},
	}
}

// Get returns the entry of an attachment, or nil if the entry does not exist. If its content is unusable, Get
// returns a [*store.CorruptError]; callers warn and continue as if the entry did not exist. If a newer build
// wrote the entry, Get returns a [*FormatError].
func (j *Journal) Get(k Key) (*Entry, error) {
	name, err := k.readable(j)
	if err != nil {
		return nil, err
	}
	data, err := j.entries.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return parseEntry(j.entries.Path(name), k, data, err)
}

// readable returns the name of an entry's file if the journal is readable.
func (k Key) readable(j *Journal) (string, error) {
	if err := j.readable(); err != nil {
		return "", err
	}
	return k.entry()
}

func parseEntry(path string, k Key, data []byte, err error) (*Entry, error) {
	return parsed(path, data, err, func(data []byte) (*Entry, error) {
		e := &Entry{raw: data}
		err := decode(data, e, &e.Format)
		if err == nil && e.Key != k {
			err = fmt.Errorf("belongs to attachment %s", e.Key)
		}
		return e, err
	})
}

// parsed decodes a record whose read returned data and err. Unusable content is a [*store.CorruptError]; a
// record of a newer build is a [*FormatError].
func parsed[T any](path string, data []byte, err error, decode func([]byte) (*T, error)) (record *T, _ error) {
	if err == nil {
		record, err = decode(data)
	} else if !errors.Is(err, store.ErrTooLarge) && !errors.Is(err, store.ErrNotRegular) {
		return nil, err
	}
	if newer, ok := errors.AsType[*FormatError](err); ok {
		newer.Path = path
		return nil, newer
	}
	if err != nil {
		return nil, &store.CorruptError{Path: path, Err: err}
	}
	return record, nil
}

// Lock is like [Journal.Get], for callers that will undo or replace the entry. It locks the entry until
// [Entry.Unlock]. While another process has the lock, Lock waits. After the time in wait it returns a
// [*store.BusyError]. If the entry is corrupt, Lock returns a [*store.CorruptError] together with a locked
// entry that has only the key.
//
// ADD keeps its entry locked until it ends. A delegate inherits the lock and keeps it until it ends, even if
// devinfo was killed.
func (j *Journal) Lock(ctx context.Context, k Key, wait time.Duration) (*Entry, error) {
	name, err := k.readable(j)
	if err != nil {
		return nil, err
	}
	path := j.entries.Path(name)
	f, err := store.Lock(ctx, path, wait)
	if errors.Is(err, store.ErrNotRegular) { // a symbolic link; the journal writes none
		err = j.entries.Remove(name)
	}
	if f == nil && err == nil {
		return nil, nil
	}
	var data []byte
	if err == nil {
		data, err = j.entries.Content(f)
	}
	e, err := parseEntry(path, k, data, err)
	switch {
	case errors.As(err, new(*store.CorruptError)):
		e = &Entry{Key: k, raw: data, damaged: true}
	case err != nil:
		store.Unlock(f)
		return nil, err
	}
	e.file = f
	return e, err
}

// Unlock ends the lock of an entry. It ignores nil and entries without a lock.
func (e *Entry) Unlock() {
	if e != nil {
		store.Unlock(e.file)
		e.file = nil
	}
}

// Lost reports whether what ADD recorded is not known: e is nil, not from the journal, or damaged.
func (e *Entry) Lost() bool { return e.Locked() == nil || e.damaged }

// Locked returns the open file of a locked entry, for plugins to inherit, or nil.
func (e *Entry) Locked() *os.File {
	if e == nil {
		return nil
	}
	return e.file
}

// Put writes an attachment's entry and takes all leases that it names. If another holder has one of them, Put
// changes nothing and returns a [*HeldError]. It sets e.Format, e.BootID and e.Uptime, and locks e like [Journal.Lock].
//
// former is the locked entry that e replaces, or nil. Put releases the leases of former that e does
// not name, and unlocks former. If the entry on disk is not former, Put returns a [*ConcurrentChangeError].
func (j *Journal) Put(e, former *Entry) error {
	e.Format, e.BootID, e.Uptime = Format, j.bootID, uptime()
	by, err := e.holderLinks()
	if err != nil {
		return err
	}
	data, err := encode(e)
	if err != nil {
		return fmt.Errorf("journal entry of %s: %w", e.Key, err)
	}
	return j.makeAlone(func() error { return j.replace(e, former, by, data) })
}

// replace writes e's record over that of former, and exchanges their leases. The caller must hold the lock of all
// leases.
func (j *Journal) replace(e, former *Entry, by holderLinks, data []byte) error {
	if err := inPlace(j.entries.Path(by.link), e.Key, former.Locked()); err != nil {
		return err
	}
	stale, err := j.allowed(by)
	if err != nil {
		return err
	}
	var released []lease // of former, to restore after a failure
	if former != nil {   // remove the links first: an entry must name each link
		rest := without(former.leases(), by.leases)
		for _, l := range rest {
			if !notThere(j.leases.path(l, by.link)) {
				released = append(released, l)
			}
		}
		err = j.leases.remove(by.link, rest)
	}
	var f *os.File
	if err == nil {
		f, err = j.entries.WriteLocked(by.link, data)
	}
	if err != nil {
		j.leases.restore(by, released)
		return err
	}
	if err := j.leases.add(by, stale); err != nil {
		if j.entries.restore(former, by.link, f, data) == nil { // otherwise the new entry, which does not name them, stays
			j.leases.restore(by, released)
		}
		return err
	}
	e.file, e.raw = f, data
	former.Unlock()
	return nil
}

// restore replaces a new entry, whose open file and content are given, by former's record, or removes it if former is
// nil.
func (r records) restore(former *Entry, name string, f *os.File, data []byte) error {
	if former == nil {
		defer store.Unlock(f)
		return r.Remove(name)
	}
	restored, err := r.WriteLocked(name, former.raw)
	former.Unlock()
	if err != nil {
		former.file, former.raw = f, data
		return err
	}
	former.file = restored
	store.Unlock(f)
	return nil
}

// ConcurrentChangeError reports that another call has added or deleted the attachment since the caller read its entry.
type ConcurrentChangeError struct{ Key Key }

func (e *ConcurrentChangeError) Error() string {
	return fmt.Sprintf("attachment %s: another call has added or deleted it at the same time", e.Key)
}

// inPlace returns a [*ConcurrentChangeError] unless the file at an entry's path is ours. If ours is nil, the path must
// not exist.
func inPlace(path string, k Key, ours *os.File) (err error) {
	is := false
	if ours != nil {
		is, _, err = store.IsAt(ours, path)
	} else if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		is, err = true, nil
	}
	if err == nil && !is {
		err = &ConcurrentChangeError{k}
	}
	return err
}

func (e *Entry) Same(other *Entry) bool { return other != nil && bytes.Equal(e.raw, other.raw) }

// Forget releases the leases of an entry, then removes its libcni cache and the entry. The caller must have locked the
// entry and removed its files. Missing files are not an error.
func (j *Journal) Forget(e *Entry) error {
	name, err := e.entry()
	if err != nil {
		return err
	}
	if leases := e.leases(); len(leases) > 0 {
		if err := j.Alone(func() error { return j.leases.remove(name, leases) }); err != nil {
			return err
		}
	}
	if len(e.Delegates) > 0 && !notThere(j.Cache(e.Key)) { // on a read-only disk even the removal of nothing fails
		if err := store.UnlessGone(os.RemoveAll(j.Cache(e.Key))); err != nil {
			return err
		}
	}
	return j.entries.Remove(name)
}

// All returns the keys of all entries, or of those of a container, sorted by network.
func (j *Journal) All(container ...string) (keys []Key, err error) {
	if err := j.readable(); err != nil {
		return nil, err
	}
	entries, err := j.entries.Entries(container...)
	for _, e := range entries { // of any file type, because Get returns an error for irregular files
		if k, ok := parseKey(e.Name()); ok && (len(container) == 0 || k.ContainerID == container[0]) {
			keys = append(keys, k)
		}
	}
	return keys, err
}

// Newer returns the pods, as namespace/name, whose entries have a format above the given one. If an entry does
// not name its pod, the list contains the attachment's key. Newer ignores corrupt entries.
func (j *Journal) Newer(than int) (pods []string, err error) {
	keys, err := j.All()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		e, err := j.Get(k)
		newer, ok := errors.AsType[*FormatError](err)
		switch {
		case ok && newer.Format > than:
			pods = append(pods, cmp.Or(newer.Pod, k.String()))
		case ok, errors.As(err, new(*store.CorruptError)):
		case err != nil:
			return nil, err
		case e != nil && e.Format > than:
			pods = append(pods, cmp.Or(e.pod(), k.String()))
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods), nil
}

// Unrecorded calls f if the attachment has no entry. It holds the lock of all leases, so no ADD writes one
// while f runs. It then removes leases that a power failure has left without an entry.
func (j *Journal) Unrecorded(k Key, f func() error) error {
	name, err := k.entry()
	if err != nil { // no entry can have this key
		return f()
	}
	if err := j.readable(); err != nil {
		return err
	}
	return j.Alone(func() error {
		if _, err := os.Lstat(j.entries.Path(name)); err == nil { // another ADD has recorded it
			return nil
		} else if !absent(err) {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		left := &Entry{Key: k}
		if err := j.FillFromLeases(left); err != nil {
			return err
		}
		if err := j.leases.remove(name, left.leases()); err != nil {
			return err
		}
		return j.entries.Remove(name) // also removes the temporary file of a killed Put
	})
}

// Changed returns the time when an entry was last written or removed, so a caller can detect changes. It is
// zero if the journal does not exist.
func (j *Journal) Changed() (time.Time, error) {
	stat, err := os.Stat(j.entries.Path(""))
	if err != nil {
		return time.Time{}, store.UnlessGone(err)
	}
	return stat.ModTime(), nil
}
