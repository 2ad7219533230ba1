package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"devinfo-cni.io/devinfo/atomicfile"
	"devinfo-cni.io/devinfo/store"
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
	names := map[Kind]string{OfFile: "device-info file", OfSpec: "CDI spec", OfSocket: "socket directory"}
	return cmp.Or(names[k], string(k))
}

// pods says whether a thing of that kind is a pod's, by all of its attachments.
func (k Kind) pods() bool { return k == OfSocket || k == OfDevice }

// SharingMode says whether others may have a lease beside this one.
type SharingMode string

// The modes. A lease that is not exclusive admits others that are not.
const (
	Exclusive SharingMode = "exclusive"
	Shared    SharingMode = "shared"
)

// A DeviceLease is a holder's lease of a device. Whoever has a part of a device, such as a
// VF, has a shared lease of the whole too, the PF: so an exclusive PF keeps others from its
// VFs, and a VF others from an exclusive PF.
type DeviceLease struct {
	ID     string      `json:"id"`               // "pci-0000:01:10.6", "iommu-15"
	Mode   SharingMode `json:"mode"`             // of all leases of other kinds it is exclusive
	Object uint64      `json:"object,omitempty"` // sysfs.Object.Inode: another one is another device, whatever its name; 0 = unknown
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

// lockLimit bounds the wait for others to take or give back a lease, which they do in a
// millisecond.
const lockLimit = 10 * time.Second

// alone calls f under the lock of all leases, and makes their directory.
func (j *Journal) alone(f func() error) error {
	began := false
	err := j.leases.Alone(lockLimit, func() error { began = true; return f() })
	if began || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := j.entries.Make(); err != nil {
		return err
	}
	if err := j.leases.Make(); err != nil {
		return err
	}
	return j.leases.Alone(lockLimit, f)
}

// refusal is the holder that keeps somebody from a lease; nil = nobody does. stale are the
// paths of links that count for nothing.
func (j *Journal) refusal(l lease, by taker) (h *Holder, stale []string, err error) {
	if err := atomicfile.CheckName(escape(l.ID)); err != nil {
		return nil, nil, &store.NameError{Name: l.ID, Err: err}
	}
	links, err := j.leases.of(l)
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
			data, _ := j.entries.Read(k.file())
			if e := head(data); e.Key == k && e.BootID != "" && e.BootID == j.bootID {
				h.Entry, err = e, nil
				of = taker{pods: []string{e.Pod}, leases: []lease{l}} // what it names is not known
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
	case h.Entry != nil && l.kind == OfDevice && h.Entry.Netns != "" && surely(j.NetnsGone(h.Entry.Netns)):
		return nil, nil, nil // a pod that is gone keeps nobody from a device
	}
	return h, of.pods, nil
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
	if err = j.leases.add(by, stale); err != nil {
		_ = undo() // it is the first error that tells
	}
	return err
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
