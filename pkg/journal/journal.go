// Package journal remembers, from ADD to DEL, what the plugin did for each
// attachment, so that DEL and GC can undo it without prevResult, network
// namespace or the help of the runtime. It also answers whose a device-info file
// is (section 4.2 of the Device Information Specification 1.1.0: names are
// unique per attachment), because a runtime may be made to pass the path of
// another pod's file.
//
// It is not a cache: nothing in it speeds up anything, and what the kernel or the
// device-info file can say is not asked of it.
//
//	attachments/<network>@<containerID>@<ifName>   one JSON each
//	files/<device-info file> -> ../attachments/... who recorded that file
//	cdi/<CDI spec> -> ../attachments/...           who recorded that spec
//
// There is no lock that two attachments share, unless they want the same file.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo/store"
)

// DefaultDir is the usual state directory.
const DefaultDir = "/var/lib/cni/devinfo"

// Journal is the state directory of one node. Its methods may be called at once,
// also from several processes, but for one Key only one at a time, as CNI
// demands of runtimes.
type Journal struct {
	bootID  string
	entries *store.Dir
	files   claims // of device-info files
	specs   claims // of CDI specs
}

// Open names the state directory, which must be absolute; it touches nothing on
// disk. The bootID tells entries of this boot from older ones: see [BootID].
func Open(stateDir, bootID string) *Journal {
	j := &Journal{bootID: bootID, entries: store.OpenPrivate(filepath.Join(stateDir, "attachments"))}
	j.files = claims{j, "device-info file", store.OpenPrivate(filepath.Join(stateDir, "files")), func(e *Entry) string { return e.File }}
	j.specs = claims{j, "CDI spec", store.OpenPrivate(filepath.Join(stateDir, "cdi")), func(e *Entry) string { return e.CDI.File }}
	return j
}

// BootID is the kernel's name for the current boot.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// Get returns the entry of an attachment, nil if there is none. Content that
// makes no sense is a [*store.CorruptError]: the caller warns and goes on as if
// there were no entry; Put and Drop do.
func (j *Journal) Get(k Key) (*Entry, error) {
	name, err := k.entry()
	if err != nil {
		return nil, err
	}
	data, err := j.entries.Read(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e := new(Entry)
	err = json.Unmarshal(data, e)
	if err == nil && e.Key != k {
		err = fmt.Errorf("is of attachment %s", e.Key)
	}
	if err != nil {
		return nil, &store.CorruptError{Path: j.entries.Path(name), Err: err}
	}
	return e, nil
}

// Put records an attachment, in place of an earlier entry of the same Key, as one
// of this boot: it sets e.BootID. It first claims e.File and e.CDI.File, if any; one
// that belongs to another attachment is an [*OwnedError], and nothing is changed.
func (j *Journal) Put(e *Entry) error {
	name, err := e.entry()
	if err != nil {
		return err
	}
	old, err := j.getSound(e.Key)
	if err != nil {
		return err
	}
	e.BootID = j.bootID
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("journal entry of %s: %w", e.Key, err)
	}
	data = append(data, '\n')
	err = j.files.claim(e, func() error {
		return j.specs.claim(e, func() error { return j.entries.Write(name, data) })
	})
	if err != nil || old == nil {
		return err
	}
	if err := j.files.releaseFormer(old, e); err != nil {
		return err
	}
	return j.specs.releaseFormer(old, e)
}

// Drop forgets an attachment. It is success if there is no entry.
func (j *Journal) Drop(k Key) error {
	name, err := k.entry()
	if err != nil {
		return err
	}
	e, err := j.getSound(k)
	if err != nil {
		return err
	}
	if e == nil {
		return j.entries.Remove(name)
	}
	return j.Forget(e)
}

// Forget is Drop for who has read the entry.
func (j *Journal) Forget(e *Entry) error {
	name, err := e.entry()
	if err != nil {
		return err
	}
	// The entry goes first: a claim without an entry counts for nothing, and
	// release creates a lock file, for which a full disk has room after this.
	if err := j.entries.Remove(name); err != nil {
		return err
	}
	if err := j.files.releaseFormer(e, nil); err != nil {
		return err
	}
	return j.specs.releaseFormer(e, nil)
}

// Tidy removes what a Put that was killed left of the attachment's claim on a
// file, where Drop has no entry to tell of it. Call it after Drop.
func (j *Journal) Tidy(k Key, file string) error {
	link, err := j.files.dir.Readlink(file)
	switch {
	case err == nil && link == target(k):
		return j.files.release(k, file)
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return j.files.dir.Tidy(file)
	}
	return err
}

// Claims lists the files that the attachment has claimed, for when its entry, which
// knows, cannot be read. It reads every claim of the node.
func (j *Journal) Claims(k Key) ([]string, error) {
	return j.files.dir.Links(target(k))
}

// SpecClaims is Claims for CDI specs.
func (j *Journal) SpecClaims(k Key) ([]string, error) {
	return j.specs.dir.Links(target(k))
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
	names, err := j.entries.Names()
	var keys []Key
	for _, name := range names {
		if k, ok := parseKey(name); ok && strings.HasPrefix(name, prefix) {
			keys = append(keys, k)
		}
	}
	return keys, err
}

// Writable asks, without side effect, whether Put could succeed.
func (j *Journal) Writable() error {
	if err := j.entries.Writable(); err != nil {
		return err
	}
	return j.files.dir.Writable()
}

// getSound is Get where a corrupt entry is as good as none.
func (j *Journal) getSound(k Key) (*Entry, error) {
	e, err := j.Get(k)
	var corrupt *store.CorruptError
	if errors.As(err, &corrupt) {
		return nil, nil
	}
	return e, err
}
