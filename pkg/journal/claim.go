package journal

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"devinfo-cni.io/devinfo/atomicfile"
	"devinfo-cni.io/devinfo/store"
)

// Claim is the record of the leases that a ResourceClaim has for one of its devices. The claim's network may
// run without the devinfo plugin, so the attachment may have no [Entry]. Only the driver ends these leases. A
// missing network namespace does not mean that the device is free.
type Claim struct {
	Format    int           `json:"format"` // set by Hold
	UID       string        `json:"uid"`
	Part      string        `json:"part,omitempty"` // the device; "" = all devices without an interface
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

// Record returns the name of the claim's record, <UID> or <UID>=<Part>, which no entry can have.
func (c *Claim) Record() string {
	if c.Part == "" {
		return c.UID
	}
	return c.UID + "=" + c.Part
}

// EndCommand returns the command that ends all leases of the claim on a node without the driver.
func (c *Claim) EndCommand() string {
	uid, _, _ := strings.Cut(c.UID, "=") // UID is the record's name if a newer build wrote the claim
	return "devinfoctl gc --claim " + uid + " --yes"
}

// Claim returns the claim in a record of this boot, or nil if the record does not exist.
func (j *Journal) Claim(record string) (*Claim, error) {
	data, err := j.claims.Read(record)
	if errors.As(err, new(*store.NameError)) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	c, err := parsed(j.claims.Path(record), data, err, func(data []byte) (*Claim, error) {
		c := new(Claim)
		err := json.Unmarshal(data, c)
		switch {
		case c.Format > Format:
			return nil, &FormatError{Format: c.Format}
		case err == nil && c.Record() != record:
			err = errors.New("belongs to claim " + c.Record())
		}
		return c, err
	})
	if err != nil || !ofBoot(c.BootID, j.bootID) {
		return nil, err
	}
	return c, nil
}

// Claims returns the names of all claim records.
func (j *Journal) Claims() ([]string, error) { return j.claims.Names() }

// Hold writes a claim's record, takes the leases that are new in it, and releases old ones that it no longer
// names. If another holder has one of the new leases, Hold changes nothing and returns a [*HeldError]. After
// another error the new record may remain, if the disk is full; then [Journal.Holding] returns false for it.
func (j *Journal) Hold(c *Claim) error {
	c.Format, c.BootID = Format, j.bootID
	return j.alone(func() error {
		var had []lease
		undo := func() error { return j.claims.Remove(c.Record()) }
		before, err := j.Claim(c.Record())
		if before != nil {
			had = devices(before.Leases)
			undo = func() error { return j.claims.Write(c.Record(), before.encode()) }
		} else if err != nil && !errors.As(err, new(*store.CorruptError)) {
			return err
		}
		by, _ := c.holderLinks()
		if err := j.take(by, func() error { return j.claims.Write(c.Record(), c.encode()) }, undo); err != nil {
			return err
		}
		if before != nil {
			files := maps.Clone(before.Files)
			maps.DeleteFunc(files, func(path, _ string) bool { return c.Files[path] != "" })
			if err := removeFiles(files); err != nil {
				return err
			}
		}
		return j.leases.remove(by.link, without(had, by.leases))
	})
}

// removeFiles removes the files whose content has not changed.
func removeFiles(files map[string]string) error {
	for path, content := range files {
		dir, name := store.Open(filepath.Dir(path)), filepath.Base(path)
		if now, err := dir.Read(name); errors.Is(err, fs.ErrNotExist) || err == nil && string(now) == content {
			if err := dir.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Claim) encode() []byte {
	data, _ := json.Marshal(c) // strings and numbers always encode
	return append(data, '\n')
}

// Holding reports whether a claim has all leases that its record names. After a killed Hold it may have only
// some.
func (j *Journal) Holding(c *Claim) bool { return len(j.Devices(c)) == len(c.Leases) }

// ReleaseIf removes a claim's record, leases and files, unless allowed returns an error. No lease changes while
// allowed runs. A missing record is not an error. If a power failure has torn the record, the next sweep
// removes its leases.
func (j *Journal) ReleaseIf(record string, allowed func() error) error {
	if atomicfile.CheckName(record) != nil || notThere(j.claims.Path(record)) {
		return nil
	}
	return j.alone(func() error {
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
