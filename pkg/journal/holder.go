package journal

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Holder is who has a lease: an attachment, a claim, or a network namespace that
// sriov-cni has given the device to.
type Holder struct {
	Entry *Entry // nil = not an attachment; one of a newer build has its Key alone
	Claim *Claim // nil = not a claim
	Netns string // of sriov-cni's lock
	Mode  SharingMode
}

// String names the pod, the network or the claim.
func (h Holder) String() string {
	switch {
	case h.Claim != nil:
		return "claim " + h.Claim.Namespace + "/" + h.Claim.Name
	case h.Entry == nil:
		return "network namespace " + h.Netns + " (by sriov-cni)"
	}
	who := "container " + h.Entry.ContainerID
	if namespace, name := h.Entry.PodName(); name != "" {
		who = "pod " + namespace + "/" + name
	}
	return fmt.Sprintf("%s (%s, network %s)", who, h.Entry.IfName, h.Entry.Network)
}

// A HeldError says that somebody else has a lease that keeps the caller from its own.
type HeldError struct {
	Kind   Kind
	ID     string // as the lease has it: a file's name, a directory's path, a device's ID
	Part   string // the device that was asked for, if it is a part of ID; else ""
	Holder Holder
}

func (e *HeldError) Error() string {
	if e.Kind != OfDevice {
		return fmt.Sprintf("%s %s: belongs to attachment %s", e.Kind, e.ID, e.Holder.Entry.Key)
	}
	text := "device " + DeviceName(e.ID)
	if e.Part != "" {
		text += ", which " + DeviceName(e.Part) + " is a part of"
	}
	text += ": is held by " + e.Holder.String()
	var since time.Time
	switch h := e.Holder; {
	case h.Claim != nil:
		since = h.Claim.Time
	case h.Entry != nil:
		since = h.Entry.Time
	}
	if since.IsZero() { // unknown
		return text
	}
	return text + ", since " + since.UTC().Format("2006-01-02 15:04:05 MST")
}

// DeviceName is what people and plugins call the device of an ID: a PCI address, or the
// name on its bus.
func DeviceName(id string) string {
	if bus, name, ok := strings.Cut(id, "-"); ok && bus != "iommu" {
		return name
	}
	return "IOMMU group " + strings.TrimPrefix(id, "iommu-")
}

// An Owner is who takes or has leases: an [Entry] or a [Claim].
type Owner interface {
	taker() (taker, error)
}

// A taker is an owner by the name of its links.
type taker struct {
	link   string   // name of the link: an entry's, or a claim's record
	target string   // of the link, from the state directory
	pods   []string // whose attachments and claims do not keep it out
	netns  string   // sriov-cni's lock for it is its own
	leases []lease  // all that it has, or may have
}

func (e *Entry) taker() (taker, error) {
	name, err := e.entry()
	by := taker{link: name, target: entriesDir + "/" + name, netns: e.Netns, leases: e.leases()}
	if e.Pod != "" {
		by.pods = []string{e.Pod}
	}
	return by, err
}

func (c *Claim) taker() (taker, error) {
	return taker{c.Record(), claimsDir + "/" + c.Record(), c.Pods, c.Netns, devices(c.Leases)}, nil
}

// Free is an error, a [*HeldError] say, if somebody else keeps an owner from what it names. It
// takes nothing: it is for one that only describes that.
func (j *Journal) Free(o Owner) error {
	by, err := o.taker()
	if err == nil {
		_, err = j.allowed(by)
	}
	return err
}

// Has says whether the entry's attachment has an exclusive lease of a device, which is the
// object of that inode (0 = unknown): of the same name there may be another one by now. What
// the entry names is not enough: an ADD that was killed may not have got it.
func (j *Journal) Has(e *Entry, id string, inode uint64) bool {
	return slices.ContainsFunc(j.Devices(e), func(l DeviceLease) bool {
		return l.ID == id && l.Mode == Exclusive && (l.Object == inode || l.Object == 0 || inode == 0)
	})
}

// Devices are the leases of devices that an owner has, of those that it names.
func (j *Journal) Devices(o Owner) (has []DeviceLease) {
	by, err := o.taker()
	for _, l := range by.leases {
		if err == nil && l.kind == OfDevice && !notThere(j.leases.path(l, by.link)) {
			has = append(has, l.DeviceLease)
		}
	}
	return has
}

// Holds says whether an attachment has a link to a thing, though its entry be gone, of
// another boot, or invalid.
func (j *Journal) Holds(k Key, kind Kind, id string) bool {
	name, err := k.entry()
	return err == nil && !notThere(j.leases.path(lease{kind, DeviceLease{ID: id, Mode: Exclusive}}, name))
}

// Holders gives those who have a lease of a thing, the exclusive one first. Attachments of
// another boot do not count, nor do those whose entry is gone, or so corrupt that its beginning
// does not name this boot: a power failure may have torn it. Nobody who is gone holds a device.
func (j *Journal) Holders(kind Kind, id string) (list []Holder, err error) {
	l := lease{kind, DeviceLease{ID: id}}
	links, err := j.leases.of(l)
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		h, _, err := j.counts(l, link)
		if err != nil {
			return nil, err
		}
		if h != nil {
			list = append(list, *h)
		}
	}
	return list, nil
}

// Owner is the attachment that a file or spec belongs to; nil = none.
func (j *Journal) Owner(kind Kind, id string) (*Key, error) {
	holders, err := j.Holders(kind, id)
	if err != nil || len(holders) == 0 || holders[0].Entry == nil {
		return nil, err
	}
	return &holders[0].Entry.Key, nil
}

// Leased lists the things of a kind of which there are leases, also those that count for
// nothing.
func (j *Journal) Leased(kind Kind) ([]string, error) { return j.leases.ids(kind) }

// Remains fills in, of an entry that is invalid, what it has leases of, by the links. It reads
// every lease of the node.
func (j *Journal) Remains(e *Entry) error {
	name, err := e.entry()
	if err != nil {
		return err
	}
	things, err := j.leases.things()
	for _, l := range things {
		for _, l.Mode = range []SharingMode{Shared, Exclusive} {
			if notThere(j.leases.path(l, name)) {
				continue
			}
			if id := e.id(l.kind); id != nil {
				*id = l.ID
			} else {
				e.Leases = append(e.Leases, l.DeviceLease)
			}
		}
	}
	return err
}
