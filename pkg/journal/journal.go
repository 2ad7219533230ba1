// Package journal is the plugin's write-ahead record: what each attachment owns, or may
// come to own, is on disk before any of it is made, and is forgotten last. Whoever reads
// an entry can finish the work, or undo it, without prevResult, network namespace or the
// help of the runtime: DEL, GC, the ADD after one that was killed, and devinfoctl.
//
// It also answers who has what, by leases. A device-info file is one attachment's (section
// 4.2 of the Device Information Specification 1.1.0: names are unique per attachment),
// whatever path a runtime may be made to pass; so is a CDI spec. A socket directory and a
// device are a pod's; devices may also be a ResourceClaim's.
//
//	attachments/<network>@<containerID>@<ifName>   one JSON each
//	claims/<UID>                                   one JSON each: what the driver's claims have
//	libcni/<entry>/                                what libcni keeps while an attachment's delegates run
//	leases/{file,spec,socket,device}/<id>/<holder> -> ../../../attachments/... or claims/...
//	leases/device/<id>/~<holder>                   the same, shared
//
// A lease counts while its holder is there, is of this boot and names it. A holder is
// written before its leases, and removed after them. Reading, releasing and forgetting
// create nothing on disk, not even a lock: a full disk does not stop a DEL.
package journal

import (
	"bytes"
	"context"
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
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/safefile"
)

// Journal is the state directory of one node. Its methods may be called concurrently,
// also from several processes.
type Journal struct {
	// SRIOVLocks is where sriov-cni says which PCI functions it has given away; "" = it is not asked.
	SRIOVLocks string
	// NetnsGone says whether a network namespace is gone; an error means that it cannot be told.
	NetnsGone func(path string) (bool, error)

	bootID  string
	dir     string
	entries *safefile.Dir
	claims  *safefile.Dir
	leases  links
}

// The directories below the state directory.
const (
	entriesDir = "attachments"
	claimsDir  = "claims"
)

// ClaimPath is that of a claim's record, below a state directory.
func ClaimPath(stateDir, record string) string { return filepath.Join(stateDir, claimsDir, record) }

// Open names the state directory, which must be absolute; it touches nothing on
// disk. The bootID tells entries of this boot from older ones: see [BootID].
func Open(stateDir, bootID string) *Journal {
	in := func(name string) *safefile.Dir { return safefile.Open(filepath.Join(stateDir, name)) }
	return &Journal{NetnsGone: link.NetnsGone, bootID: bootID, dir: filepath.Clean(stateDir), entries: in(entriesDir), claims: in(claimsDir), leases: links{in("leases")}}
}

// BootID is the kernel's name for the current boot.
func BootID() (string, error) {
	const path = "/proc/sys/kernel/random/boot_id"
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // in a sandbox anything may be there
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 65))
	if err != nil {
		return "", err
	}
	id := strings.TrimSpace(string(data))
	if id == "" || len(data) > 64 || strings.ContainsRune(id, 0) {
		return "", fmt.Errorf("%s: not a boot ID: %.20q", path, id)
	}
	return id, nil
}

// FormatError says that an entry was written by a newer build. It must be left alone.
type FormatError struct {
	Path   string
	Format int
	Pod    string // namespace/name; "" = the entry does not say
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: has format %d, but this devinfo reads formats up to %d", e.Path, e.Format, Format)
}

// Get returns the entry of an attachment, nil if there is none. Content that makes no
// sense is a [*store.CorruptError]: the caller warns and goes on as if there were no
// entry. An entry of a newer build is a [*FormatError].
func (j *Journal) Get(k Key) (*Entry, error) {
	name, err := k.entry()
	if err != nil {
		return nil, err
	}
	data, err := j.entries.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return parseEntry(j.entries.Path(name), k, data, err)
}

func parseEntry(path string, k Key, data []byte, err error) (*Entry, error) {
	return parsed(path, data, err, func(data []byte) (*Entry, error) {
		e, err := decode(data)
		if err == nil && e.Key != k {
			err = fmt.Errorf("belongs to attachment %s", e.Key)
		}
		return e, err
	})
}

// parsed makes a record of what was read of it, or of the error in place of that.
func parsed[T any](path string, data []byte, err error, decode func([]byte) (*T, error)) (record *T, _ error) {
	if err == nil {
		record, err = decode(data)
	} else if !errors.Is(err, store.ErrTooLarge) && !errors.Is(err, safefile.ErrNotRegular) {
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

// Lock is Get for one who is about to undo or replace the entry: it waits, at most that
// long, until nobody else has the entry locked, and locks it until [Entry.Unlock]. An ADD
// has its entry locked from when it is written until it ends, and a plugin that is run for
// an attachment, until that has ended, though its caller was killed. With the
// [*store.CorruptError] comes an entry that has nothing but its key, locked all the same. A
// [*safefile.BusyError] says that the wait has ended.
func (j *Journal) Lock(ctx context.Context, k Key, wait time.Duration) (*Entry, error) {
	name, err := k.entry()
	if err != nil {
		return nil, err
	}
	path := j.entries.Path(name)
	f, err := safefile.Lock(ctx, path, wait)
	if errors.Is(err, safefile.ErrNotRegular) { // a link, which nobody has locked
		err = j.entries.Remove(name)
	}
	if f == nil && err == nil {
		return nil, nil
	}
	var data []byte
	if err == nil {
		data, err = safefile.Content(f)
	}
	e, err := parseEntry(path, k, data, err)
	switch {
	case errors.As(err, new(*store.CorruptError)):
		e = &Entry{Key: k}
	case err != nil:
		safefile.Unlock(f)
		return nil, err
	}
	e.file = f
	return e, err
}

// Unlock lets others have the entry; nil, or one that is not locked, is nobody's.
func (e *Entry) Unlock() {
	if e != nil {
		safefile.Unlock(e.file)
		e.file = nil
	}
}

// Locked is the entry's file while it is locked, for plugins to inherit; nil = it is not.
func (e *Entry) Locked() *os.File {
	if e == nil {
		return nil
	}
	return e.file
}

// Record records an attachment, and takes leases of all that its entry names, at once: what
// another has is a [*HeldError], after which nothing has changed. It sets e.BootID, and
// locks the entry: see [Journal.Lock]. former is the entry that it replaces, locked, whose
// lock then ends, and of whose leases those that e does not name are given back first; any other
// entry of the attachment is a [*BetweenError].
func (j *Journal) Record(e, former *Entry) error {
	e.Format, e.BootID = Format, j.bootID
	by, err := e.taker()
	if err != nil {
		return err
	}
	data, err := encode(e)
	if err != nil {
		return fmt.Errorf("journal entry of %s: %w", e.Key, err)
	}
	return j.alone(func() error {
		if err := inPlace(j.entries.Path(by.link), e.Key, former.Locked()); err != nil {
			return err
		}
		var f *os.File
		var back taker // the leases of the former entry that were removed, to restore after a failure
		err := j.take(by, func() (err error) {
			if former != nil { // while an entry still names them
				rest := without(former.leases(), by.leases)
				back = taker{link: by.link, target: by.target, leases: j.leases.existing(by.link, rest)}
				err = j.leases.remove(by.link, rest)
			}
			if err == nil {
				f, err = j.entries.WriteLocked(by.link, data)
			}
			return err
		}, func() error {
			if former == nil {
				defer safefile.Unlock(f)
				return j.entries.Remove(by.link)
			}
			was := former.raw
			former.Unlock()
			former.file, former.raw = f, data
			restored, err := j.entries.WriteLocked(by.link, was)
			if err != nil { // the new entry stays, and it names more leases than it has
				back.leases = nil
				return err
			}
			former.Unlock()
			former.file, former.raw = restored, was
			return nil
		})
		if err != nil {
			_ = j.leases.add(back, nil) // the first error is the cause
			return err
		}
		e.file, e.raw = f, data
		former.Unlock()
		return nil
	})
}

// A BetweenError says that another call about an attachment has come between.
type BetweenError struct{ Key Key }

func (e *BetweenError) Error() string {
	return fmt.Sprintf("attachment %s: another call has added or deleted it at the same time", e.Key)
}

// inPlace is an error unless what is at the path of an entry is the file that we have
// locked, or nothing where we have none.
func inPlace(path string, k Key, ours *os.File) (err error) {
	is := false
	if ours != nil {
		is, err = safefile.IsAt(ours, path)
	} else if _, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		is, err = true, nil
	}
	if err == nil && !is {
		err = &BetweenError{k}
	}
	return err
}

// Same says whether two entries are the same record: that which Record has written.
func (e *Entry) Same(other *Entry) bool { return other != nil && bytes.Equal(e.raw, other.raw) }

// Forget gives back what the entry has leases of, and then removes it. The caller has
// removed the files, and has the entry locked. What is gone already is success.
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
	if len(e.Delegates) > 0 {
		if err := os.RemoveAll(j.Cache(e.Key)); err != nil {
			return err
		}
	}
	return j.entries.Remove(name)
}

// All returns all attachments, sorted by network.
func (j *Journal) All() ([]Key, error) {
	entries, err := j.entries.Entries()
	var keys []Key
	for _, e := range entries { // whatever it is: Get says so
		if k, ok := parseKey(e.Name()); ok {
			keys = append(keys, k)
		}
	}
	return keys, err
}

// Writable asks, without side effect, whether Record could succeed.
func (j *Journal) Writable() error {
	if err := safefile.Lockable(j.dir, syscall.Statfs); err != nil {
		return err
	}
	return store.Open(j.entries.Path("")).Writable()
}

// Alone calls f while nobody can take or give back a lease, and so no ADD can be recorded.
// Where there has never been one it makes nothing.
func (j *Journal) Alone(f func() error) error {
	if notThere(j.leases.Path("")) {
		return f()
	}
	return j.leases.Alone(lockLimit, f)
}

// Unrecorded calls f if the attachment has no entry, while none can be written, and then
// gives back leases that a power failure has left without one.
func (j *Journal) Unrecorded(k Key, f func() error) error {
	name, err := k.entry()
	if err != nil { // none can have the key
		return f()
	}
	return j.Alone(func() error {
		if _, err := os.Lstat(j.entries.Path(name)); err == nil { // it has been added meanwhile
			return nil
		} else if !absent(err) {
			return err
		}
		if err := f(); err != nil {
			return err
		}
		left := &Entry{Key: k}
		if err := j.Remains(left); err != nil {
			return err
		}
		if err := j.leases.remove(name, left.leases()); err != nil {
			return err
		}
		return j.entries.Remove(name) // what a killed Record has left
	})
}

// Changed is when an entry was last written or removed: a time that is not the same any
// more says that there is something new. It is zero while there is no journal.
func (j *Journal) Changed() (time.Time, error) {
	stat, err := os.Stat(j.entries.Path(""))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return stat.ModTime(), nil
}
