package state

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/store"
)

const (
	suffix   = ".json"
	setAside = ".corrupt"
	lockFile = "lock"

	driverLink = "driver" // symbolic link in the journal

	DefaultDir  = "/var/lib/kubelet/plugins/cni.dra.networking.x-k8s.io/state" // see [NodeDir]
	DirVariable = "DEVINFO_DRA_STATE_DIR"                                      // environment variable that overrides DefaultDir
)

// NodeDir returns the state directory of cni-dra-driver on this node: of the environment variable, else of the driver that
// has last used the journal in stateDir (see [Announce]), else DefaultDir. The kubelet's directory may be elsewhere.
func NodeDir(stateDir string) string {
	last, _ := os.Readlink(filepath.Join(stateDir, driverLink)) // fails before the first driver
	return cmp.Or(os.Getenv(DirVariable), last, DefaultDir)
}

// Announce tells readers of the journal in stateDir, which exists, that the driver's state is in dir.
func Announce(stateDir, dir string) error {
	path := filepath.Join(stateDir, driverLink)
	if last, _ := os.Readlink(path); last == dir {
		return nil // also on a disk that is full
	}
	next := path + ".new"
	_ = os.Remove(next) // a killed driver may have left it
	err := os.Symlink(dir, next)
	if err == nil {
		err = os.Rename(next, path)
	}
	return err
}

func Path(dir, uid string) string { return filepath.Join(dir, uid+suffix) }

// AsidePath returns the path of a claim's record after the driver has set it aside as damaged.
func AsidePath(dir, uid string) string { return Path(dir, uid) + setAside }

// RecordOf returns the UID of the claim whose record is in the file. ok is false if the file is not a record.
func RecordOf(path string) (uid string, ok bool) {
	return strings.CutSuffix(filepath.Base(path), suffix)
}

// Store is the state directory of one node. Its methods may be called concurrently for different claims.
type Store struct {
	dir  *store.Dir
	lock *os.File
}

// Problem is a record that cannot be used.
type Problem struct {
	UID   string // from the name of the file
	Err   error  // a [*SchemaError], or the mistake in the content
	Aside string // new path of a file with invalid content; "" = the file was not renamed
}

// SchemaError is the error of a file that a newer driver wrote. The file is not changed.
type SchemaError struct {
	Path   string
	Schema int
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s: schema %d: this driver supports schemas up to %d: run the driver that wrote the file, or a newer one",
		e.Path, e.Schema, Schema)
}

// ErrLocked is the error of [Open] while another process has the directory open.
var ErrLocked = errors.New("another driver uses it: wait until that driver has ended, or use a different directory")

// Open creates the directory, which must be an absolute path, and locks it until [Store.Close] or the end of the
// process.
func Open(dir string) (*Store, error) {
	d := store.Durable(dir)
	if err := d.Make(); err != nil {
		return nil, err
	}
	lock, err := store.LockFile(context.Background(), d.Path(lockFile), 0)
	if errors.As(err, new(*store.BusyError)) {
		err = ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	return &Store{d, lock}, nil
}

// Close unlocks the directory. It does not rely on closing the file, because a child process that has not executed
// its program yet may still have the file open.
func (s *Store) Close() error {
	return errors.Join(syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN), s.lock.Close())
}

func (s *Store) Put(c *Claim) error {
	c.Schema = Schema
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("state of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return s.dir.Write(c.UID+suffix, append(data, '\n'))
}

func (s *Store) Remove(uid string) error { return s.dir.Remove(uid + suffix) }

// Writable returns the error that Put would return for the directory. It changes nothing.
func (s *Store) Writable() error { return s.dir.Room(16) } // several claims may be prepared at once

// All reads all records, sorted by UID. It renames a file with invalid content, so that the claim can be prepared
// again, and returns a Problem for it. It also returns a Problem for each file that was renamed earlier. valid returns
// the error of a record whose parts for the Kubernetes API are invalid.
func (s *Store) All(valid func(*Claim) error) ([]*Claim, []Problem, error) {
	names, err := s.dir.Names()
	if err == nil && !slices.Contains(names, lockFile) { // Open has created it
		err = fmt.Errorf("state directory %s: it is not the one that this process has locked: was it removed, or unmounted?", s.dir.Path(""))
	}
	if err != nil {
		return nil, nil, err
	}
	var claims []*Claim
	var problems []Problem
	for _, name := range names {
		uid, isRecord := RecordOf(name)
		if !isRecord {
			if uid, _, isAside := strings.Cut(name, suffix+setAside); isAside {
				problems = append(problems, Problem{uid, errors.New("the record was set aside at an earlier start"), s.dir.Path(name)})
			}
			continue
		}
		c, err := read(s.dir, uid)
		if err == nil {
			if invalid := valid(c); invalid != nil {
				err = &store.CorruptError{Path: s.dir.Path(name), Err: invalid}
			}
		}
		aside := ""
		if errors.As(err, new(*store.CorruptError)) {
			var failed error
			if aside, failed = s.putAside(name); failed != nil {
				return nil, nil, fmt.Errorf("%w; and the file could not be renamed: %w", err, failed)
			}
		}
		switch {
		case err == nil:
			claims = append(claims, c)
		case aside != "" || errors.As(err, new(*SchemaError)):
			problems = append(problems, Problem{uid, err, aside})
		default:
			return nil, nil, err
		}
	}
	return claims, problems, nil
}

// UIDs returns the claims that have a record in a state directory, also one that was set aside. A directory that does not
// exist has none.
func UIDs(dir string) (map[string]bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	uids := map[string]bool{}
	for _, e := range entries {
		if uid, _, isRecord := strings.Cut(e.Name(), suffix); isRecord {
			uids[uid] = true
		}
	}
	return uids, nil
}

// read reads a record. The error is a [*SchemaError], a [*store.CorruptError] for invalid content, or a system
// error.
func read(dir *store.Dir, uid string) (*Claim, error) {
	name := uid + suffix
	path := dir.Path(name)
	data, err := dir.Read(name)
	if errors.Is(err, store.ErrTooLarge) {
		return nil, &store.CorruptError{Path: path, Err: err}
	} else if err != nil {
		return nil, err
	}
	c, err := Parse(path, data)
	if err != nil {
		return nil, err
	}
	if err := check(c, uid); err != nil {
		return nil, &store.CorruptError{Path: path, Err: err}
	}
	return c, nil
}

// Parse decodes a record. Errors contain path; the error is a [*SchemaError], or a [*store.CorruptError] for invalid
// JSON. Parse accepts a record without the fields that only the driver needs, such as List, because a capture
// contains such records.
func Parse(path string, data []byte) (*Claim, error) {
	var version struct {
		Schema int `json:"schema"`
	}
	if json.Unmarshal(data, &version) == nil && version.Schema > Schema {
		return nil, &SchemaError{path, version.Schema}
	}
	c := new(Claim)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, &store.CorruptError{Path: path, Err: err}
	}
	return c, nil
}

func check(c *Claim, uid string) error {
	switch {
	case c.Schema < 1:
		return fmt.Errorf("schema %d: must be 1 or more", c.Schema)
	case c.UID != uid:
		return fmt.Errorf("the record is of claim %q, but the file name has a different UID", c.UID)
	}
	var errs []error
	for n, a := range slices.Concat(c.Attachments, c.Undeleted) {
		isUndeleted := n >= len(c.Attachments)
		switch {
		case (a.Phase == Undeleted) != isUndeleted || !slices.Contains(Phases(), a.Phase):
			errs = append(errs, fmt.Errorf("request %q: phase %q: not allowed here", a.Request, a.Phase))
		case a.Bare() && a.NodeDevice != nil && !a.Owes():
		case a.Bare() || a.IfName == "" || a.Owes() && a.Sandbox == "":
			errs = append(errs, fmt.Errorf("request %q: list and ifName are required; sandbox is also required from phase Adding onwards", a.Request))
		}
	}
	return errors.Join(errs...)
}

// putAside renames a record, adding a suffix and, if that name exists, the time. It returns the new path.
func (s *Store) putAside(name string) (string, error) {
	to := s.dir.Path(name + setAside)
	if _, err := os.Lstat(to); err == nil {
		to += fmt.Sprintf("-%d", time.Now().UnixNano())
	}
	return to, os.Rename(s.dir.Path(name), to)
}

// clearedName returns the name of the file that requests the driver to drop the record of an undeleted attachment.
// The command clear writes this file, because only the driver may change records.
func clearedName(uid string, at *Attachment) string {
	return uid + "=" + at.Sandbox + "=" + at.IfName + ".cleared"
}

// Clear makes the driver drop the records of a claim's undeleted attachments without another DEL. A running driver
// does so within a minute. Clear returns the record, and an error if it has no undeleted attachments.
func Clear(dir string, uid string) (*Claim, error) {
	d := store.Durable(dir)
	c, err := read(d, uid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(c.Undeleted) == 0 {
		err = fmt.Errorf("%s has no attachment of the claim whose DEL was given up", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("claim UID %q: %w", uid, err)
	}
	for n := range c.Undeleted {
		if err := d.Write(clearedName(uid, &c.Undeleted[n]), nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// IsCleared reports whether [Clear] was called for an undeleted attachment of a claim.
func (s *Store) IsCleared(uid string, at *Attachment) bool {
	_, err := s.dir.Read(clearedName(uid, at))
	return err == nil
}

// Cleared removes the file that [Clear] wrote. Call it when the record no longer contains the attachment. After a
// power failure the file may exist again, but without an attachment it has no effect.
func (s *Store) Cleared(uid string, at *Attachment) error {
	return store.Private(s.dir.Path("")).Remove(clearedName(uid, at))
}

// OfferFile is the name of the file with an [Offer]. devinfoctl reads it; the driver only writes it.
const OfferFile = "offer"

// Offer lists the node's devices that rules select, and whether each is offered: see package inventory.
type Offer struct {
	Rules     string          `json:"rules"`             // path of the rules file
	Problem   string          `json:"problem,omitempty"` // why the rules are invalid, which ends the driver; "" = they are valid
	Devices   []Offered       `json:"devices,omitempty"` // by name, without devices that no rule selects
	Unmatched []UnmatchedRule `json:"idle,omitempty"`    // by index of the rule
}

// UnmatchedRule is a rule that has no effect on this node, because each device fails it or meets an earlier rule.
type UnmatchedRule struct {
	Rule    string `json:"names"`             // "devices[1] (ifNames: eth77)"; "devices" = the file has no rules
	Why     string `json:"why"`               // the values that no device has, each with the nearest value that a device has
	Nearest string `json:"nearest,omitempty"` // the first such nearest value; "" = none is similar
}

func (r UnmatchedRule) String() string { return r.Rule + " selects no device of this node: " + r.Why }

// Offered is a device of the node that a rule selects.
type Offered struct {
	Name string `json:"name"` // name in the ResourceSlice
	hostdev.Ref
	Sharing      string `json:"sharing"` // "shared" or "exclusive"
	ResourceName string `json:"resourceName,omitempty"`
	Why          string `json:"why,omitempty"` // why the device is not offered; "" = it is offered
}

// WriteOffer writes the offer to a state directory. nil removes it.
func WriteOffer(dir string, o *Offer) error {
	d := store.Private(dir)
	if o == nil {
		return d.Remove(OfferFile)
	}
	data, _ := json.Marshal(o) // strings always encode
	return d.Write(OfferFile, append(data, '\n'))
}

// ReadOffer reads the offer, or returns nil if it does not exist. The error of invalid content is a
// [*store.CorruptError].
func ReadOffer(dir string) (*Offer, error) {
	d := store.Private(dir)
	data, err := d.Read(OfferFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	o := new(Offer)
	if err := json.Unmarshal(data, o); err != nil {
		return nil, &store.CorruptError{Path: d.Path(OfferFile), Err: err}
	}
	return o, nil
}
