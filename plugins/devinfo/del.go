package devinfo

import (
	"cmp"
	"errors"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// del undoes ADD according to the journal entry, see package cleanup. It succeeds if the attachment does not exist, and
// accepts arguments that ADD refuses. If the entry is missing or corrupt, reconstruct fills in what ADD would have written.
func (c *Call) del() error {
	if c.itself() {
		c.Log.Warn("nothing done: devinfo runs as its own delegate")
		return nil
	}
	if err := checkNetns(c.Attachment.Args); err != nil && c.Attachment.Netns != "" && failure.Code(err) != failure.IO {
		c.Log.Warn("treating the network namespace as gone", "error", err)
		c.Attachment.Netns = ""
	}
	if err := c.Journal.Own(); err != nil { // root would run the delegates that another user names
		c.Log.Warn("ignoring the journal", "error", err)
		c.Journal = c.Journal.Ignored()
	}
	e, err := c.LockAnyway(c.Key)
	if errors.As(err, new(*store.NameError)) {
		c.Log.Warn("no journal entry", "error", err) // ADD refuses such long names, so it recorded no entry
	} else if err != nil {
		return err
	}
	defer e.Unlock()
	if e.Lost() {
		e = cmp.Or(e, &journal.Entry{Key: c.Key})
		c.reconstruct(e)
	}
	r := c.Removal(e)
	r.Netns = c.Attachment.Netns // the runtime's path is current; it is empty if the namespace is gone
	if err := c.addNamed(r); err != nil {
		return err
	}
	return r.Run()
}

// addNamed also removes the device-info file that the runtime names, which may differ from that of the entry.
func (c *Call) addNamed(r *cleanup.Removal) error {
	name, err := c.infoFileName()
	if err != nil && failure.Code(err) == failure.Config { // ADD refuses such a path, so it wrote no file there
		c.Log.Warn("no device-info file removed", "error", err)
		return nil
	}
	if err != nil || name == "" || name == r.File {
		return err
	}
	if r.File == "" {
		r.Dir, r.File = c.Node.DeviceInfoDir, name
		return nil
	}
	named := c.Removal(&journal.Entry{Key: c.Key, Dir: c.Node.DeviceInfoDir, File: name})
	return c.Journal.Alone(named.RemoveFile)
}
