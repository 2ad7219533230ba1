package journal

import (
	"os"
	"slices"
)

// Free is an error, a [*HeldError] say, if somebody else keeps the entry's attachment from
// the devices that it names. It takes none: it is for one that only describes them.
func (j *Journal) Free(e *Entry) error {
	by, err := e.holder()
	if err != nil {
		return err
	}
	_, err = j.allowed(by, devices(e.Leases))
	return err
}

// FreeFor is Free for a claim.
func (j *Journal) FreeFor(c *Claim) error {
	_, err := j.allowed(c.holder(), c.leases())
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

// Devices are the leases of devices that the entry's attachment has, of those that it names.
func (j *Journal) Devices(e *Entry) []DeviceLease {
	name, err := e.entry()
	if err != nil {
		return nil
	}
	return j.taken(name, e.Leases)
}

// DevicesOf is Devices of a claim.
func (j *Journal) DevicesOf(c *Claim) []DeviceLease { return j.taken(c.Record(), c.Leases) }

func (j *Journal) taken(by string, named []DeviceLease) (has []DeviceLease) {
	for _, l := range devices(named) {
		if !notThere(j.link(l, by)) {
			has = append(has, l.DeviceLease)
		}
	}
	return has
}

// Holds says whether an attachment has a link to a thing, though its entry be gone, of
// another boot, or invalid.
func (j *Journal) Holds(k Key, kind Kind, id string) bool {
	name, err := k.entry()
	return err == nil && !notThere(j.link(lease{kind, DeviceLease{ID: id, Mode: Exclusive}}, name))
}

// Holders gives those who have a lease of a thing, the exclusive one first. Attachments of
// another boot do not count, nor do those whose entry is gone or corrupt: entries are
// written atomically, so only a power failure tears them. Nobody who is gone holds a device.
func (j *Journal) Holders(kind Kind, id string) (list []Holder, err error) {
	links, err := j.links(kind, id, Exclusive, Shared)
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		h, _, err := j.counts(lease{kind, DeviceLease{ID: id}}, link)
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
func (j *Journal) Leased(kind Kind) (ids []string, err error) {
	entries, err := os.ReadDir(j.leases.Path(string(kind)))
	if absent(err) {
		err = nil
	}
	for _, e := range entries {
		ids = append(ids, unescape(kind, e.Name()))
	}
	return ids, err
}

// Remains fills in, of an entry that is invalid, what it has leases of, by the links. It reads
// every lease of the node.
func (j *Journal) Remains(e *Entry) error {
	name, err := e.entry()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		ids, err := j.Leased(kind)
		if err != nil {
			return err
		}
		for _, id := range ids {
			for _, mode := range []Mode{Shared, Exclusive} {
				l := lease{kind, DeviceLease{ID: id, Mode: mode}}
				if notThere(j.link(l, name)) {
					continue
				}
				switch kind {
				case OfDevice:
					e.Leases = append(e.Leases, l.DeviceLease)
				case OfFile:
					e.File = id
				case OfSpec:
					e.CDI.File = id
				case OfSocket:
					e.SocketDir = id
				}
			}
		}
	}
	return nil
}
