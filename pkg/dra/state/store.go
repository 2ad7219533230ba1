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

	"k8s.io/apimachinery/pkg/types"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/safefile"
)

const (
	suffix   = ".json"
	setAside = ".corrupt"
	lockFile = "lock"

	DefaultDir  = "/var/lib/kubelet/plugins/cni.dra.networking.x-k8s.io/state" // see [NodeDir]
	DirVariable = "DEVINFO_DRA_STATE_DIR"                                      // environment variable
)

// NodeDir returns the state directory of the agent of driver cni.dra.networking.x-k8s.io on this node. The
// environment variable is for nodes whose kubelet has its directories elsewhere.
func NodeDir() string { return cmp.Or(os.Getenv(DirVariable), DefaultDir) }

// Path is the path of a claim's record in a state directory.
func Path(dir, uid string) string { return filepath.Join(dir, uid+suffix) }

// RecordOf is the UID of the claim whose record is in a file; false = none is.
func RecordOf(path string) (uid string, ok bool) {
	return strings.CutSuffix(filepath.Base(path), suffix)
}

// Store is the state directory of one node. Its methods may be called concurrently, but
// for one claim only one at a time.
type Store struct {
	dir  *safefile.Dir
	lock *os.File
}

// Problem is a claim whose file cannot be used.
type Problem struct {
	UID   types.UID // as the file's name says
	Err   error     // [*SchemaError], or what is wrong with the content
	Aside string    // where a file with invalid content was put; "" = it was left alone
}

// SchemaError says that a file was written by a newer agent. The file is left alone.
type SchemaError struct {
	Path   string
	Schema int
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("%s: schema %d: this agent knows up to %d: run the agent that wrote it, or a newer one",
		e.Path, e.Schema, Schema)
}

// ErrLocked is the error of [Open] while another process uses the directory.
var ErrLocked = errors.New("another agent uses it: wait until that one has ended, or give this one a directory of its own")

// Open makes the directory, which must be an absolute path, and locks it for as long as
// this process lives, or until [Store.Close].
func Open(dir string) (*Store, error) {
	d := safefile.OpenDurable(dir)
	if err := d.Make(); err != nil {
		return nil, err
	}
	lock, err := safefile.LockFile(context.Background(), d.Path(lockFile), 0)
	if errors.As(err, new(*safefile.BusyError)) {
		err = ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, err)
	}
	return &Store{d, lock}, nil
}

// Close unlocks the directory, although a child that has not executed its program yet may still
// have the file open.
func (s *Store) Close() error {
	return errors.Join(syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN), s.lock.Close())
}

// Put writes a record to the disk.
func (s *Store) Put(c *Claim) error {
	c.Schema = Schema
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("state of claim %s/%s: %w", c.Namespace, c.Name, err)
	}
	return s.dir.Write(string(c.UID)+suffix, append(data, '\n'))
}

// Remove removes a record, if it exists.
func (s *Store) Remove(uid types.UID) error { return s.dir.Remove(string(uid) + suffix) }

// Writable returns an error if Put could not succeed. It changes nothing.
func (s *Store) Writable() error { return store.Open(s.dir.Path("")).Writable() }

// All reads every record, sorted by UID. A file with invalid content is reported, and renamed, so
// that the claim can be prepared again. Files that were renamed earlier are reported again.
func (s *Store) All() ([]*Claim, []Problem, error) {
	names, err := s.dir.Names()
	if err != nil {
		return nil, nil, err
	}
	var claims []*Claim
	var problems []Problem
	for _, name := range names {
		uid, isRecord := RecordOf(name)
		if !isRecord {
			if uid, _, isAside := strings.Cut(name, suffix+setAside); isAside {
				problems = append(problems, Problem{types.UID(uid), errors.New("set aside by an earlier start"), s.dir.Path(name)})
			}
			continue
		}
		c, err := read(s.dir, types.UID(uid))
		aside := ""
		if errors.As(err, new(*store.CorruptError)) {
			var failed error
			if aside, failed = s.putAside(name); failed != nil {
				return nil, nil, fmt.Errorf("%w; set it aside: %w", err, failed)
			}
		}
		switch {
		case err == nil:
			claims = append(claims, c)
		case aside != "" || errors.As(err, new(*SchemaError)):
			problems = append(problems, Problem{types.UID(uid), err, aside})
		default:
			return nil, nil, err
		}
	}
	return claims, problems, nil
}

// read reads a record. The error is a [*SchemaError], a [*store.CorruptError] for invalid
// content, or the system's.
func read(dir *safefile.Dir, uid types.UID) (*Claim, error) {
	name := string(uid) + suffix
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

// Parse decodes the record in the file at path, which is only named in errors: a
// [*SchemaError], or a [*store.CorruptError] for invalid JSON. It does not ask for what only
// the agent needs, such as List: a captured host has records without it.
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

func check(c *Claim, uid types.UID) error {
	switch {
	case c.Schema < 1:
		return fmt.Errorf("schema %d: must be 1 or more", c.Schema)
	case c.UID != uid:
		return fmt.Errorf("it is of %q: that must be the file's name", c.UID)
	}
	var errs []error
	for n, a := range slices.Concat(c.Attachments, c.Undeleted) {
		isUndeleted := n >= len(c.Attachments)
		switch {
		case (a.Phase == Undeleted) != isUndeleted || !slices.Contains(Phases(), a.Phase):
			errs = append(errs, fmt.Errorf("request %q: phase %q: not allowed here", a.Request, a.Phase))
		case a.Bare() && a.NodeDevice != nil && !a.Owes():
		case a.Bare() || a.IfName == "" || a.Owes() && a.Sandbox == "":
			errs = append(errs, fmt.Errorf("request %q: list and ifName are required, and from phase Adding on sandbox", a.Request))
		}
	}
	return errors.Join(errs...)
}

// putAside renames a file to the first name that is free.
func (s *Store) putAside(name string) (string, error) {
	from := s.dir.Path(name)
	for n := range 100 {
		to := from + setAside
		if n > 0 {
			to = fmt.Sprintf("%s%s-%d", from, setAside, n)
		}
		if err := os.Link(from, to); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			return "", err
		}
		return to, os.Remove(from)
	}
	return "", fmt.Errorf("%s: there are 100 such files already: remove some", filepath.Dir(from))
}

// clearedName is the name of the file by which an administrator has an undeleted attachment
// forgotten: only the agent may change the record.
func clearedName(uid types.UID, at *Attachment) string {
	return string(uid) + "=" + at.Sandbox + "=" + at.IfName + ".cleared"
}

// Clear has the agent of a state directory forget the attachments of a claim that are now
// undeleted, without another DEL: within a minute if it runs, else at its next start. It
// returns the record with them, and an error if there are none.
func Clear(dir string, uid types.UID) (*Claim, error) {
	d := safefile.OpenDurable(dir)
	c, err := read(d, uid)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(c.Undeleted) == 0 {
		err = fmt.Errorf("%s has no attachment of it whose DEL was given up", dir)
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
func (s *Store) IsCleared(uid types.UID, at *Attachment) bool {
	_, err := s.dir.Read(clearedName(uid, at))
	return err == nil
}

// Cleared removes the mark of [Clear], once the record is without the attachment. After a power
// failure the mark may be back, of an attachment that is in no record.
func (s *Store) Cleared(uid types.UID, at *Attachment) error {
	return safefile.Open(s.dir.Path("")).Remove(clearedName(uid, at))
}

// OfferFile is the file with an [Offer] in the state directory. The agent writes it for people, and
// never reads it.
const OfferFile = "offer"

// Offer lists the node's own devices, by whether they are offered: see package inventory.
type Offer struct {
	Rules   string    `json:"rules"`             // path of the file with the rules
	Digest  string    `json:"digest,omitempty"`  // of that file as it was read, SHA-256 in hexadecimal digits
	Problem string    `json:"problem,omitempty"` // why they cannot be used: no agent runs then
	Devices []Offered `json:"devices,omitempty"` // by name; those that no rule names are left out
	Idle    []Idle    `json:"idle,omitempty"`    // by index
}

// Idle is a rule that no device of the node meets first: it has no effect on this node.
type Idle struct {
	Rule    string `json:"names"`             // "devices[1] (ifNames: eth77)"; "devices" = there is none
	Why     string `json:"why"`               // which of its values no device has, and the nearest one that a device has
	Nearest string `json:"nearest,omitempty"` // the first of the latter; "" = nothing comes near
}

func (i Idle) String() string { return i.Rule + " names no device of this node: " + i.Why }

// Offered is one of the node's own devices.
type Offered struct {
	Name string `json:"name"` // in the ResourceSlice
	hostdev.Ref
	Sharing      string `json:"sharing"` // "shared" or "exclusive"
	ResourceName string `json:"resourceName,omitempty"`
	Why          string `json:"why,omitempty"` // it is not offered, though a rule names it; "" = it is
}

// WriteOffer writes an offer to a state directory; nil removes the file.
func WriteOffer(dir string, o *Offer) error {
	d := safefile.Open(dir)
	if o == nil {
		return d.Remove(OfferFile)
	}
	data, err := json.Marshal(o)
	if err == nil {
		err = d.Write(OfferFile, append(data, '\n'))
	}
	return err
}

// ReadOffer reads an offer; nil = there is none. Invalid content is a [*store.CorruptError].
func ReadOffer(dir string) (*Offer, error) {
	d := safefile.Open(dir)
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
