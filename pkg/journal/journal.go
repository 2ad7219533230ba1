// Package journal is the plugin's write-ahead record: what each attachment owns, or may
// come to own, is on disk before any of it is made, and is forgotten last. Whoever reads
// an entry can finish the work, or undo it, without prevResult, network namespace or the
// help of the runtime: DEL, GC, the ADD after one that was killed, and devinfoctl.
//
// It also answers whose a device-info file is (section 4.2 of the Device Information
// Specification 1.1.0: names are unique per attachment), because a runtime may be made to
// pass the path of another pod's file; and likewise for CDI specs and socket directories.
//
//	attachments/<network>@<containerID>@<ifName>   one JSON each
//	files/<device-info file> -> ../attachments/...  who claims that file
//	cdi/<CDI spec> -> ../attachments/...            who claims that spec
//	sockets/<directory>/<entry> -> ../../attachments/...  who uses that directory: one pod
//	held/<device>                                  who has it by a ResourceClaim, one JSON each
//
// A claim counts while its entry is there, is of this boot and names the file. An entry is
// written before its claims, and removed after them. Reading, releasing and forgetting
// create nothing on disk, not even a lock: a full disk does not stop a DEL.
package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/private"
)

// Journal is the state directory of one node. Its methods may be called concurrently,
// also from several processes, but for one Key only one at a time, as CNI requires of
// runtimes.
type Journal struct {
	bootID  string
	dir     string
	entries *private.Dir
	files   claims // of device-info files
	specs   claims // of CDI specs
	held    *private.Dir
}

// Open names the state directory, which must be absolute; it touches nothing on
// disk. The bootID tells entries of this boot from older ones: see [BootID].
func Open(stateDir, bootID string) *Journal {
	j := &Journal{bootID: bootID, dir: stateDir, entries: private.Open(filepath.Join(stateDir, "attachments")), held: private.Open(filepath.Join(stateDir, "held"))}
	j.files = claims{j, "device-info file", private.Open(filepath.Join(stateDir, "files")), (*Entry).files}
	j.specs = claims{j, "CDI spec", private.Open(filepath.Join(stateDir, "cdi")), (*Entry).specs}
	return j
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
	id := strings.TrimSpace(string(data))
	if err == nil && (id == "" || len(data) > 64 || strings.ContainsRune(id, 0)) {
		err = fmt.Errorf("%s: not a boot ID: %.20q", path, id)
	}
	if err != nil {
		return "", err
	}
	return id, nil
}

// FormatError says that an entry was written by a newer build. It must be left alone.
type FormatError struct {
	Path   string
	Format int
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s: has format %d, and this devinfo knows formats up to %d", e.Path, e.Format, Format)
}

// Get returns the entry of an attachment, nil if there is none. Content that makes no
// sense is a [*store.CorruptError]: the caller warns and goes on as if there were no
// entry; Put and Forget do. An entry of a newer build is a [*FormatError].
func (j *Journal) Get(k Key) (*Entry, error) {
	name, err := k.entry()
	if err != nil {
		return nil, err
	}
	data, err := j.entries.Read(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, private.ErrNotRegular):
		return nil, &store.CorruptError{Path: j.entries.Path(name), Err: err}
	case err != nil:
		return nil, err
	}
	e, err := decode(data)
	if newer := new(FormatError); errors.As(err, &newer) {
		newer.Path = j.entries.Path(name)
		return nil, newer
	}
	if err == nil && e.Key != k {
		err = fmt.Errorf("is of attachment %s", e.Key)
	}
	if err != nil {
		return nil, &store.CorruptError{Path: j.entries.Path(name), Err: err}
	}
	return e, nil
}

// Put records an attachment, in place of former, its earlier entry as Get returned it
// (nil = none that makes sense), as one of this boot: it sets e.BootID. Then it claims all
// that the entry names; what belongs to another attachment is an [*OwnedError]. After an
// error nothing has changed, and undo is nil; else undo puts everything back as it was.
func (j *Journal) Put(e, former *Entry) (undo func() error, err error) {
	name, err := e.entry()
	if err != nil {
		return nil, err
	}
	before, err := j.content(name, e.Key, former)
	if err != nil {
		return nil, err
	}
	e.Format, e.BootID = Format, j.bootID
	data, err := encode(e)
	if err != nil {
		return nil, fmt.Errorf("journal entry of %s: %w", e.Key, err)
	}
	var made []func() error
	undo = func() error {
		var errs []error
		for _, release := range made {
			errs = append(errs, release())
		}
		if err := errors.Join(errs...); err != nil { // the entry is what tells of them
			return err
		}
		return j.restore(name, before)
	}
	if err := j.entries.Write(name, data); err != nil {
		return nil, err
	}
	e.raw = data
	if made, err = j.claim(e); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// content is what the file of an entry holds; nil if there is none that could be put back.
// Where the caller has not read it, it may be a newer build's, which is an error.
func (j *Journal) content(name string, k Key, e *Entry) ([]byte, error) {
	if e != nil && e.raw != nil {
		return e.raw, nil
	}
	e, err := j.Get(k)
	if corrupt := new(store.CorruptError); errors.As(err, &corrupt) {
		torn, _ := j.entries.Read(name) // or it is no file at all
		return torn, nil
	}
	if err != nil || e == nil {
		return nil, err
	}
	return e.raw, nil
}

// restore makes the file of an entry hold what it held; nil if there was none.
func (j *Journal) restore(name string, before []byte) error {
	if before == nil {
		return j.entries.Remove(name)
	}
	if now, err := j.entries.Read(name); err == nil && bytes.Equal(now, before) {
		return nil
	}
	return j.entries.Write(name, before)
}

// claim claims all that an entry names. The releases are of what was claimed just now,
// also when it fails.
func (j *Journal) claim(e *Entry) (releases []func() error, err error) {
	for _, c := range []claims{j.files, j.specs} {
		for _, file := range c.of(e) {
			made, err := c.claim(e.Key, file)
			if made {
				releases = append(releases, func() error { return c.release(e.Key, file) })
			}
			if err != nil {
				return releases, err
			}
		}
	}
	for _, dir := range e.socketDirs() {
		made, err := j.claimSockets(e, dir)
		if made {
			releases = append(releases, func() error { return j.releaseSockets(e.Key, dir) })
		}
		if err != nil {
			return releases, err
		}
	}
	return releases, nil
}

// Unchanged says whether the entry on disk is still the one that Get returned.
func (j *Journal) Unchanged(e *Entry) (bool, error) {
	name, err := e.entry()
	if err != nil {
		return false, err
	}
	now, err := j.entries.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && bytes.Equal(now, e.raw), err
}

// Forget releases what the entry claims, and then removes it. The caller has removed the
// files. What is gone already is success.
func (j *Journal) Forget(e *Entry) error {
	name, err := e.entry()
	if err != nil {
		return err
	}
	if _, err := j.content(name, e.Key, e); err != nil {
		return err
	}
	for _, names := range e.All() {
		if err := j.Release(e.Key, names); err != nil {
			return err
		}
	}
	return j.entries.Remove(name)
}

// Release gives up the attachment's claims on what has these names.
func (j *Journal) Release(k Key, names Names) error {
	if names.File != "" {
		if err := j.files.release(k, names.File); err != nil {
			return err
		}
	}
	if names.CDI.File != "" {
		if err := j.specs.release(k, names.CDI.File); err != nil {
			return err
		}
	}
	if names.SocketDir != "" {
		return j.releaseSockets(k, names.SocketDir)
	}
	return nil
}

// Lock is the file that is locked while a plugin runs for the attachment: its entry.
func (j *Journal) Lock(k Key) string {
	name, err := k.entry()
	if err != nil {
		return ""
	}
	return j.entries.Path(name)
}

// List returns the attachments of one network, sorted.
func (j *Journal) List(network string) ([]Key, error) {
	return j.list(network + "@")
}

// All returns all attachments, sorted by network.
func (j *Journal) All() ([]Key, error) {
	return j.list("")
}

func (j *Journal) list(prefix string) ([]Key, error) {
	entries, err := j.entries.Entries()
	var keys []Key
	for _, e := range entries { // whatever it is: Get says so
		if k, ok := parseKey(e.Name()); ok && strings.HasPrefix(e.Name(), prefix) {
			keys = append(keys, k)
		}
	}
	return keys, err
}

// Writable asks, without side effect, whether Put could succeed.
func (j *Journal) Writable() error { return store.Open(filepath.Join(j.dir, "attachments")).Writable() }

// sound is Get where a corrupt entry is as good as none.
func (j *Journal) sound(k Key) (*Entry, error) {
	e, err := j.Get(k)
	if corrupt := new(store.CorruptError); errors.As(err, &corrupt) {
		return nil, nil
	}
	return e, err
}
