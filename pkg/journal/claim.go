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

// Claim is what a ResourceClaim has, for one of its devices. Its network's plugins need not include
// ours, so that the journal may have no [Entry] of it. The driver alone ends its leases: a
// network namespace that is gone is no sign that a device was given back.
type Claim struct {
	Format    int           `json:"format"` // set by Hold
	UID       string        `json:"uid"`
	Part      string        `json:"part,omitempty"` // which of its devices; "" = all that it has no interface for
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	BootID    string        `json:"bootID"` // set by Hold
	Time      time.Time     `json:"time"`
	Pods      []string      `json:"pods"`  // UID of the pod that the claim belongs to: its own attachments are not kept out
	Netns     string        `json:"netns"` // of its pod's sandbox; "" = none yet
	Leases    []DeviceLease `json:"leases"`

	// Files are the device-info files in the place of device plugins' that the driver writes for the devices: the
	// content by the path. They are removed with the leases, unless another program has replaced them.
	Files map[string]string `json:"files,omitempty"`
}

// Record is the name of the claim's record, <UID> or <UID>=<Part>: no entry has one like it.
func (c *Claim) Record() string {
	if c.Part == "" {
		return c.UID
	}
	return c.UID + "=" + c.Part
}

// EndCommand ends the leases of all records of the claim, on a node without the driver.
func (c *Claim) EndCommand() string {
	uid, _, _ := strings.Cut(c.UID, "=") // of a newer build's claim the record is all that is known
	return "devinfoctl gc --claim " + uid + " --yes"
}

// Claim reads what Hold has recorded; nil = nothing in this boot.
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

// Claims lists the names of all records of claims.
func (j *Journal) Claims() ([]string, error) { return j.claims.Names() }

// Hold records what a claim has for a device from now on, in place of what it had: it takes
// the leases that are new, and gives back those that are no longer named. Another holder is
// a [*HeldError]. After an error nothing has changed, unless [Journal.Holding] says so: a full
// disk may not take back the record.
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
		by, _ := c.taker()
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

// removeFiles removes the files that still have their content.
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
	data, _ := json.Marshal(c) // of strings and numbers
	return append(data, '\n')
}

// Holding says whether a claim has all the leases that its record names: one who was killed
// while he took them has not.
func (j *Journal) Holding(c *Claim) bool { return len(j.Devices(c)) == len(c.Leases) }

// LetGoIf forgets a record of a claim, and gives back all that it has, unless allowed gives an
// error, which it is asked for while nothing can be recorded. What is gone already is success; the
// leases of a record that a power failure has torn go with the next sweep.
func (j *Journal) LetGoIf(record string, allowed func() error) error {
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
