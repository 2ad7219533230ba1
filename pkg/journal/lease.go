package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"devinfo-cni.io/devinfo/atomicfile"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/private"
)

// Kind is the kind of thing that a lease is of.
type Kind string

// The kinds of leases. A file or spec is one attachment's; a socket directory or a device is
// a pod's, whose attachments and claims may each have a lease of it.
const (
	OfFile   Kind = "file"   // in the device-info directory
	OfSpec   Kind = "spec"   // in the CDI directory
	OfSocket Kind = "socket" // a directory of the host
	OfDevice Kind = "device" // as sysfs.Object has it, or an IOMMU group
)

var kinds = []Kind{OfFile, OfSpec, OfSocket, OfDevice}

func (k Kind) String() string {
	switch k {
	case OfFile:
		return "device-info file"
	case OfSpec:
		return "CDI spec"
	case OfSocket:
		return "socket directory"
	}
	return string(k)
}

// pods says whether a thing of that kind is a pod's, by all of its attachments.
func (k Kind) pods() bool { return k == OfSocket || k == OfDevice }

// Mode says whether others may have a lease beside this one.
type Mode string

// The modes. A lease that is not exclusive admits others that are not.
const (
	Exclusive Mode = "exclusive"
	Shared    Mode = "shared"
)

// A DeviceLease is a holder's lease of a device. Whoever has a part of a device, such as a
// VF, has a shared lease of the whole too, the PF: so an exclusive PF keeps others from its
// VFs, and a VF others from an exclusive PF.
type DeviceLease struct {
	ID     string `json:"id"`               // "pci-0000:01:10.6", "iommu-15"
	Mode   Mode   `json:"mode"`             // of all leases of other kinds it is exclusive
	Object uint64 `json:"object,omitempty"` // sysfs.Object.Inode: another one is another device, whatever its name; 0 = unknown
}

// lease is a lease of any kind.
type lease struct {
	kind Kind
	DeviceLease
}

// sameLink says whether one holder's leases are by one link.
func (l lease) sameLink(o lease) bool { return l.kind == o.kind && l.ID == o.ID && l.Mode == o.Mode }

// leases are all that the entry's attachment has, or may have.
func (e *Entry) leases() (list []lease) {
	for _, kind := range kinds {
		if id := e.id(kind); id != nil && *id != "" {
			list = append(list, lease{kind, DeviceLease{ID: *id, Mode: Exclusive}})
		}
	}
	return append(list, devices(e.Leases)...)
}

// id is where the entry has its one thing of a kind; nil = it has a list of them.
func (e *Entry) id(kind Kind) *string {
	switch kind {
	case OfFile:
		return &e.File
	case OfSpec:
		return &e.CDI.File
	case OfSocket:
		return &e.SocketDir
	}
	return nil
}

func devices(of []DeviceLease) (list []lease) {
	for _, d := range of {
		list = append(list, lease{OfDevice, d})
	}
	return list
}

// The leases of a thing are links to their holders: leases/<kind>/<id>/<holder> if they are
// exclusive, leases/<kind>/<id>/~<holder> otherwise, which no holder's name begins with, and
// which sorts after all of them. All are taken and given back under one lock, that of the
// directory leases: a PF and its VF could else pass each other. One counts while its holder
// is there and names it; any other is removed by whoever meets it.
const sharedMark = "~"

// lockLimit bounds the wait for others to take or give back a lease, which they do in a
// millisecond.
const lockLimit = 10 * time.Second

// alone calls f under the lock of all leases.
func (j *Journal) alone(f func() error) error {
	began := false
	locked := func() error { began = true; return f() }
	err := j.leases.Alone(lockLimit, locked)
	if errors.Is(err, fs.ErrNotExist) && !began {
		if err = j.entries.Make(); err == nil {
			err = j.leases.Make()
		}
		if err == nil {
			err = j.leases.Alone(lockLimit, f)
		}
	}
	return err
}

// leaseLink is a link to a holder, by the holder's name.
type leaseLink struct {
	Mode
	path, holder string
}

// place is the directory of the links of a thing's leases.
func (j *Journal) place(l lease) string { return j.leases.Path(string(l.kind) + "/" + escape(l.ID)) }

// name is that of a holder's link.
func (l lease) name(holder string) string {
	if l.Mode == Shared {
		return sharedMark + holder
	}
	return holder
}

func (j *Journal) link(l lease, holder string) string { return j.place(l) + "/" + l.name(holder) }

// links are those of a thing, the exclusive one first.
func (j *Journal) links(l lease) (list []leaseLink, err error) {
	entries, err := os.ReadDir(j.place(l))
	if err != nil && !absent(err) {
		return nil, err
	}
	for _, e := range entries {
		link := leaseLink{Exclusive, j.place(l) + "/" + e.Name(), e.Name()}
		if holder, shared := strings.CutPrefix(e.Name(), sharedMark); shared {
			link.Mode, link.holder = Shared, holder
		}
		if e.Type() != fs.ModeSymlink {
			return nil, fmt.Errorf("%s: is not a lease: remove it", link.path)
		}
		list = append(list, link)
	}
	return list, nil
}

// escape makes one path element of an ID, which may be a path.
func escape(id string) string {
	return strings.ReplaceAll(strings.ReplaceAll(id, "%", "%25"), "/", "%2F")
}

func unescape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "%2F", "/"), "%25", "%")
}

// refusal is the holder that keeps somebody from a lease; nil = nobody does. stale are the
// paths of links that count for nothing.
func (j *Journal) refusal(l lease, by taker) (h *Holder, stale []string, err error) {
	if err := atomicfile.CheckName(escape(l.ID)); err != nil {
		return nil, nil, &store.NameError{Name: l.ID, Err: err}
	}
	links, err := j.links(l)
	if err != nil {
		return nil, nil, err
	}
	for _, link := range links {
		if link.Mode == Shared && l.Mode == Shared || link.holder == by.link || l.kind.pods() && sameContainer(link.holder, by.link) {
			continue
		}
		h, pods, err := j.counts(l, link)
		switch {
		case err != nil:
			return nil, nil, err
		case h == nil:
			stale = append(stale, link.path)
		case !l.kind.pods() || !common(pods, by.pods):
			return h, nil, nil
		}
	}
	h, err = j.lockedBySRIOV(l, by)
	return h, stale, err
}

// sameContainer says whether two entries are of one container, and so of one pod.
func sameContainer(a, b string) bool {
	k, ok := parseKey(a)
	l, both := parseKey(b)
	return ok && both && k.ContainerID == l.ContainerID
}

func common(a, b []string) bool {
	return slices.ContainsFunc(a, func(pod string) bool { return slices.Contains(b, pod) })
}

// counts gives the holder that a link leads to, and its pods; nil = the link counts for
// nothing. An entry or claim of a newer build counts: what it names is not known.
func (j *Journal) counts(l lease, link leaseLink) (h *Holder, pods []string, err error) {
	h = &Holder{Mode: link.Mode}
	l.Mode = link.Mode
	var of taker
	if k, ok := parseKey(link.holder); ok {
		if h.Entry, err = j.Get(k); h.Entry != nil && h.Entry.OfBoot(j.bootID) {
			of, _ = h.Entry.taker()
		}
		if errors.As(err, new(*store.CorruptError)) {
			if h.Entry = j.head(k); h.Entry != nil { // what it names is not known
				return j.alive(l, h, []string{h.Entry.Pod})
			}
		}
		h.Entry = cmp.Or(h.Entry, &Entry{Key: k})
	} else {
		if h.Claim, err = j.Claim(link.holder); h.Claim != nil {
			of, _ = h.Claim.taker()
		}
		h.Claim = cmp.Or(h.Claim, &Claim{UID: link.holder})
	}
	switch {
	case errors.As(err, new(*FormatError)):
		return h, nil, nil
	case err != nil && !errors.As(err, new(*store.CorruptError)):
		return nil, nil, err
	case !slices.ContainsFunc(of.leases, func(has lease) bool {
		return has.sameLink(l) && (has.Object == 0 || l.Object == 0 || has.Object == l.Object)
	}):
		return nil, nil, nil
	}
	return j.alive(l, h, of.pods)
}

// alive gives a holder back, unless it is an attachment whose namespace is gone: that keeps
// nobody from a device.
func (j *Journal) alive(l lease, h *Holder, pods []string) (*Holder, []string, error) {
	if h.Entry != nil && l.kind == OfDevice && h.Entry.Netns != "" && surely(j.NetnsGone(h.Entry.Netns)) {
		return nil, nil, nil
	}
	return h, pods, nil
}

// head reads what comes before the first list or object of an entry that is corrupt. It is nil
// unless that names the attachment and this boot: after a power failure an entry may be torn.
func (j *Journal) head(k Key) *Entry {
	data, _ := j.entries.Read(k.file()) // what could not be read is nil
	d, end := json.NewDecoder(bytes.NewReader(data)), 0
	for _, err := d.Token(); err == nil; end = int(d.InputOffset()) {
		var value json.Token
		_, noKey := d.Token()
		value, err = d.Token()
		if _, nested := value.(json.Delim); nested || noKey != nil || err != nil {
			break
		}
	}
	e := new(Entry)
	if json.Unmarshal(append(data[:end:end], '}'), e) != nil || e.Key != k || e.BootID == "" || e.BootID != j.bootID {
		return nil
	}
	return e
}

// allowed is an error if somebody keeps a holder from one of its leases.
func (j *Journal) allowed(by taker) (stale []string, err error) {
	asked := ""
	for _, l := range by.leases {
		if l.Mode == Exclusive {
			asked = l.ID
		}
		h, more, err := j.refusal(l, by)
		if err != nil {
			return nil, fmt.Errorf("lease of %s %s: %w", l.kind, l.ID, err)
		}
		if h != nil {
			held := &HeldError{Kind: l.kind, ID: l.ID, Holder: *h}
			if l.Mode == Shared {
				held.Part = asked
			}
			return nil, held
		}
		stale = append(stale, more...)
	}
	return stale, nil
}

// take has a taker written that nobody keeps from its leases, and then makes the links of these,
// in place of stale ones. The caller has the lock. After an error nothing that counts has changed,
// and undo has been called if it was written.
func (j *Journal) take(by taker, write, undo func() error) error {
	stale, err := j.allowed(by)
	if err == nil {
		err = write()
	}
	if err != nil {
		return err
	}
	if err = j.makeLinks(by, stale); err != nil {
		_ = undo() // it is the first error that tells
	}
	return err
}

func (j *Journal) makeLinks(by taker, stale []string) error {
	for _, path := range stale {
		if err := os.Remove(path); err != nil && !absent(err) { // one that two of the leases have met
			return err
		}
	}
	var made []lease
	for _, l := range by.leases {
		made = append(made, l)
		err := private.Open(j.place(l)).Link(l.name(by.link), "../../../"+by.target)
		if errors.Is(err, fs.ErrExist) {
			made, err = made[:len(made)-1], nil
		}
		if err != nil {
			_ = j.giveBack(by.link, made) // it is the first error that tells
			return fmt.Errorf("lease of %s %s: %w", l.kind, l.ID, err)
		}
	}
	return nil
}

// without are the leases of which the others have no link.
func without(list, others []lease) (rest []lease) {
	for _, l := range list {
		if !slices.ContainsFunc(others, l.sameLink) {
			rest = append(rest, l)
		}
	}
	return rest
}

// giveBack removes the links of leases, and the directories that are then empty. What is
// gone already is success, on a read-only disk too, and what no lease can be of has none.
// The caller has the lock.
func (j *Journal) giveBack(link string, leases []lease) error {
	for _, l := range leases {
		path := j.link(l, link)
		if !notThere(path) {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if err := rmdir(j.place(l)); err != nil {
			return err
		}
	}
	return nil
}

// rmdir removes a directory if it is there, and empty.
func rmdir(path string) error {
	err := syscall.Rmdir(path)
	if errors.Is(err, syscall.EROFS) {
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

// absent says that nothing is at a path, or can be.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}
