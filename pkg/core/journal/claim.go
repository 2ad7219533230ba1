package journal

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"devinfo-cni.io/pkg/host/store"
)

// Claim is the record of leases that cni-dra-driver has taken for a ResourceClaim. A claim has one record for
// each device that it attaches to a network, and one for all its other devices. The network may run without the
// devinfo plugin, so the attachment may have no [Entry]. The leases continue after the network namespace is
// removed, until the driver or "devinfoctl gc --claim" ends them.
type Claim struct {
	Format    int           `json:"format"` // set by Hold
	UID       string        `json:"uid"`
	Part      string        `json:"part,omitempty"` // names a device with a network; "" = all devices without a network
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	BootID    string        `json:"bootID"` // set by Hold
	Time      time.Time     `json:"time"`
	Pods      []string      `json:"pods"`  // UIDs of the claim's pods, whose own attachments may share the devices
	Netns     string        `json:"netns"` // network namespace of the pod's sandbox; "" = none yet
	Leases    []DeviceLease `json:"leases"`

	// Files are device-info files that the driver writes instead of a device plugin: content by path. They
	// are removed with the leases, unless another program has replaced them.
	Files map[string]string `json:"files,omitempty"`
}

// FileName returns the name of the claim's record: <UID> or <UID>=<Part>. No entry can have such a name.
func (c *Claim) FileName() string {
	if c.Part == "" {
		return c.UID
	}
	return c.UID + "=" + c.Part
}

// EndCommand returns the command that ends all leases of the claim on a node without the driver.
func (c *Claim) EndCommand() string {
	uid, _, _ := strings.Cut(c.UID, "=") // if a newer build wrote the claim, UID is the name of the record
	return "devinfoctl gc --claim " + uid + " --yes"
}

// Claim returns the claim in a record of this boot, or nil if the record does not exist.
func (j *Journal) Claim(record string) (*Claim, error) {
	if err := j.readable(); err != nil {
		return nil, err
	}
	c, _, err := j.claims.claim(record, j.bootID)
	return c, err
}

// claim is [Journal.Claim], and returns the content of the record; nil = it does not exist, or could not be read.
func (r records) claim(record, bootID string) (c *Claim, data []byte, err error) {
	data, err = r.Read(record)
	if errors.As(err, new(*store.NameError)) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	c, err = parsed(r.Path(record), data, err, func(data []byte) (*Claim, error) {
		c := new(Claim)
		err := decode(data, c, &c.Format)
		if err == nil && c.FileName() != record {
			err = errors.New("belongs to claim " + c.FileName())
		}
		return c, err
	})
	if err != nil || !ofBoot(c.BootID, bootID) {
		c = nil
	}
	return c, data, err
}

func (j *Journal) Claims() ([]string, error) {
	if err := j.readable(); err != nil {
		return nil, err
	}
	return j.claims.Names()
}

// Hold writes a claim's record and takes its leases. It then removes the files and leases of the previous
// record that the new one does not name. If another holder excludes one of the leases, Hold changes nothing and
// returns a [*HeldError]. After another error, such as a full disk, the new record may remain on disk without its leases.
// [Journal.Holding] then returns false. Like ReleaseIf, it looks at the owners of the directories each time.
func (j *Journal) Hold(c *Claim) error {
	c.Format, c.BootID = Format, j.bootID
	if err := j.Own(); err != nil {
		return err
	}
	return j.makeAlone(func() error {
		before, former, err := j.claims.claim(c.FileName(), j.bootID)
		if err != nil && !errors.As(err, new(*store.CorruptError)) {
			return err
		}
		by, _ := c.holderLinks()
		stale, err := j.allowed(by)
		if err == nil {
			data, _ := json.Marshal(c) // strings and numbers always encode
			err = j.claims.Write(c.FileName(), append(data, '\n'))
		}
		if err != nil {
			return err
		}
		err = j.leases.add(by, stale)
		if err == nil && before != nil {
			files := maps.Clone(before.Files)
			maps.DeleteFunc(files, func(path, _ string) bool { return c.Files[path] != "" })
			if err = removeFiles(files); err == nil {
				err = j.leases.remove(by.link, without(devices(before.Leases), by.leases))
			}
		}
		if err != nil && former == nil {
			_ = j.claims.Remove(c.FileName()) // report the first error
		} else if err != nil { // the former record names what is still to remove
			_ = j.claims.Write(c.FileName(), former)
		}
		return err
	})
}

// removeFiles removes the files that still have the given content.
func removeFiles(files map[string]string) error {
	for path, content := range files {
		dir, name := store.Open(filepath.Dir(path)), filepath.Base(path)
		now, err := dir.Read(name)
		switch {
		case errors.Is(err, store.ErrNotRegular), errors.Is(err, store.ErrTooLarge), err == nil && string(now) != content:
			continue // of another program
		case errors.As(err, new(*store.NameError)):
			continue // never written
		case err == nil, errors.Is(err, fs.ErrNotExist): // of a missing file, a killed Hold may have left a temporary one
			err = dir.Remove(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Holding reports whether a claim has all leases that its record names. After a killed Hold it may have only some.
func (j *Journal) Holding(c *Claim) bool { return len(j.Devices(c)) == len(c.Leases) }

// ReleaseIf calls allowed and, if that returns no error, removes the claim's files, leases and record. No lease
// changes while allowed runs. If the record is missing, ReleaseIf returns nil and does not call allowed. If the
// record is corrupt, it removes only the record, and the next sweep removes the leases.
func (j *Journal) ReleaseIf(record string, allowed func() error) error {
	if store.CheckName(record) != nil || notThere(j.claims.Path(record)) {
		return nil
	}
	if err := j.Own(); err != nil {
		return err
	}
	return j.Alone(func() error {
		if err := allowed(); err != nil {
			return err
		}
		c, err := j.Claim(record)
		if err != nil && !errors.As(err, new(*store.CorruptError)) {
			return err
		}
		if c != nil {
			if err := removeFiles(c.Files); err != nil {
				return err
			}
			if err := j.leases.remove(record, devices(c.Leases)); err != nil {
				return err
			}
		}
		return j.claims.Remove(record)
	})
}
