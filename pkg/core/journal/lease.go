package journal

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

type Kind string

// The kinds of leases. A file or spec belongs to one attachment, because the Device Information Specification 1.1.0
// (4.2) requires unique names. A socket directory or device belongs to a pod, whose attachments and claims may each
// have a lease of it.
const (
	OfFile   Kind = "file"   // in the device-info directory
	OfSpec   Kind = "spec"   // in the CDI directory
	OfSocket Kind = "socket" // a host directory
	OfDevice Kind = "device" // an ID from sysfs.Object, or an IOMMU group
)

var kinds = []Kind{OfFile, OfSpec, OfSocket, OfDevice}

func (k Kind) String() string {
	names := map[Kind]string{OfFile: "device-info file", OfSpec: "CDI spec", OfSocket: "socket directory"}
	return cmp.Or(names[k], string(k))
}

// pods reports whether attachments of one pod may share a thing of this kind.
func (k Kind) pods() bool { return k == OfSocket || k == OfDevice }

type SharingMode string

// The modes. A shared lease admits other shared leases; an exclusive one admits none.
const (
	Exclusive SharingMode = "exclusive"
	Shared    SharingMode = "shared"
)

// DeviceLease is a holder's lease of a device. A holder of a part, such as a VF, also has a shared lease of the whole
// device, such as the PF. An exclusive lease of a PF therefore excludes other holders from its VFs, and a lease of a VF
// excludes other holders from exclusive use of the PF.
type DeviceLease struct {
	ID     string      `json:"id"`               // "pci-0000:01:10.6", "iommu-15"
	Mode   SharingMode `json:"mode"`             // always exclusive for files, specs and sockets
	Object uint64      `json:"object,omitempty"` // sysfs.Object.Inode, which changes if another device gets the same name; 0 = unknown
}

// LeasesOf returns a lease of the named device with the given mode, and shared leases of the devices that
// contain it. It returns none if no such device exists.
func LeasesOf(sys *sysfs.FS, mode SharingMode, name string) (list []DeviceLease, err error) {
	line, err := sys.Lineage(name)
	if err != nil {
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	for _, device := range line {
		list = MergeLeases(list, DeviceLease{ID: device.ID, Mode: mode, Object: device.Inode})
		mode = Shared
	}
	return list, nil
}

// MergeLeases adds leases to a list. If a device is in both, the exclusive lease stays.
func MergeLeases(list []DeviceLease, more ...DeviceLease) []DeviceLease {
	for _, l := range more {
		n := slices.IndexFunc(list, func(has DeviceLease) bool { return has.ID == l.ID })
		switch {
		case n < 0:
			list = append(list, l)
		case l.Mode == Exclusive:
			list[n] = l
		}
	}
	return list
}

type lease struct {
	kind Kind
	DeviceLease
}

func (l lease) sameLink(o lease) bool { return l.kind == o.kind && l.ID == o.ID && l.Mode == o.Mode }

func (e *Entry) leases() (list []lease) {
	for _, kind := range kinds {
		if id := e.id(kind); id != nil && *id != "" {
			list = append(list, lease{kind, DeviceLease{ID: *id, Mode: Exclusive}})
		}
	}
	return append(list, devices(e.Leases)...)
}

func (e *Entry) add(l lease) {
	if id := e.id(l.kind); id != nil {
		*id = l.ID
	} else {
		e.Leases = append(e.Leases, l.DeviceLease)
	}
}

// id returns the field with the ID of a kind, or nil for devices, which are a list.
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

// lockLimit bounds the wait for the lock of all leases. A process usually holds it for a millisecond.
const lockLimit = 10 * time.Second

// Alone calls f under the lock of all leases, so no ADD is recorded while f runs. If the lease directory does
// not exist, Alone calls f and creates nothing.
func (j *Journal) Alone(f func() error) error {
	if notThere(j.leases.Path("")) {
		return f()
	}
	return j.leases.Alone(lockLimit, f)
}

// makeAlone is like Alone, but creates the lease directory.
func (j *Journal) makeAlone(f func() error) error {
	if notThere(j.leases.Path("")) {
		if err := j.leases.Make(); err != nil {
			return err
		}
	}
	return j.leases.Alone(lockLimit, f)
}

// refusal returns the holder that excludes by from a lease, or nil. stale are the paths of links that do not count.
func (j *Journal) refusal(l lease, by holderLinks) (h *Holder, stale []string, err error) {
	if err := store.CheckName(escape(l.ID)); err != nil {
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
		case !l.kind.pods() || !slices.ContainsFunc(pods, func(pod string) bool { return slices.Contains(by.pods, pod) }):
			return h, nil, nil
		}
	}
	h, err = l.lockedBySRIOV(by, j)
	return h, stale, err
}

// sameContainer reports whether two names of entries are of the same container, and so of the same pod.
func sameContainer(a, b string) bool {
	k, ok := parseKey(a)
	l, _ := parseKey(b)
	return ok && k.ContainerID == l.ContainerID
}

// counts returns the holder that a link leads to and its pods, or nil if the link does not count. A link to a
// record of a newer build always counts, because this build cannot read its leases. A link to a damaged record counts for a
// device or socket directory if the record was written in this boot: a pod that may run keeps it until DEL, an
// administrator or a reboot.
func (j *Journal) counts(l lease, link leaseLink) (h *Holder, pods []string, err error) {
	h = &Holder{Mode: link.Mode}
	l.Mode = link.Mode
	var of holderLinks
	in := j.claims
	if k, ok := parseKey(link.holder); ok {
		in = j.entries
		if h.Entry, err = j.Get(k); h.Entry != nil && h.Entry.OfBoot(j.bootID) {
			of, _ = h.Entry.holderLinks()
		}
		h.Entry = cmp.Or(h.Entry, &Entry{Key: k})
	} else {
		if h.Claim, err = j.Claim(link.holder); h.Claim != nil {
			of, _ = h.Claim.holderLinks()
		}
		uid, part, _ := strings.Cut(link.holder, "=")
		h.Claim = cmp.Or(h.Claim, &Claim{UID: uid, Part: part})
	}
	switch {
	case errors.As(err, new(*FormatError)), errors.As(err, new(*store.CorruptError)) && l.kind.pods() && in.writtenThisBoot(link.holder):
		return h, nil, nil
	case errors.As(err, new(*store.CorruptError)):
		return nil, nil, nil
	case err != nil:
		return nil, nil, err
	case !slices.ContainsFunc(of.leases, func(has lease) bool {
		return has.sameLink(l) && (has.Object == 0 || l.Object == 0 || has.Object == l.Object)
	}):
		return nil, nil, nil
	case h.Entry != nil && l.kind == OfDevice:
		if why, err := j.Stale(h.Entry); why != "" && err == nil {
			return nil, nil, nil // a deleted pod no longer holds its devices
		}
	}
	return h, of.pods, nil
}

// writtenThisBoot reports whether a damaged record is of this boot, by the time of its file. The clock may have been behind
// when the file was written, but then both the clock and the disk have failed.
func (r records) writtenThisBoot(name string) bool {
	stat, err := os.Lstat(r.Path(name))
	return err != nil || !stat.ModTime().Before(time.Now().Add(-uptime()))
}

func (j *Journal) allowed(by holderLinks) (stale []string, err error) {
	if err := j.readable(); err != nil {
		return nil, err
	}
	asked := ""
	for _, l := range by.leases {
		if l.kind == OfDevice && l.Mode == Exclusive {
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

func without(list, others []lease) (rest []lease) {
	for _, l := range list {
		if !slices.ContainsFunc(others, l.sameLink) {
			rest = append(rest, l)
		}
	}
	return rest
}
