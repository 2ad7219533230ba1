package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	"devinfo-cni.io/pkg/core/cleanup"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// Del undoes ADD according to the journal entry, see package cleanup. It succeeds if the attachment does not exist, and
// accepts arguments that ADD refuses. If the entry is missing or corrupt, reconstruct fills in what ADD would have written.
func Del(c *Call, reconstruct func(*Call, *journal.Entry)) error {
	if err := usableNetns(c.Args); err != nil {
		c.Plugin.Log.Warn("treating the network namespace as gone", "error", err)
		c.Args.Netns = ""
	}
	if err := c.Journal.Own(); err != nil { // root would run the delegates that another user names
		c.Log.Warn("ignoring the journal", "error", err, "remedy", journal.OwnRemedy)
		c.Journal = c.Journal.Ignored()
	}
	e, corrupt, err := c.LockAnyway(c.Key)
	if errors.As(err, new(*store.NameError)) {
		c.Log.Warn("no journal entry", "error", err) // ADD refuses such long names, so it recorded no entry
	} else if err != nil {
		return err
	}
	defer e.Unlock()
	if e == nil || corrupt {
		e = cmp.Or(e, &journal.Entry{Key: c.Key})
		reconstruct(c, e)
	}
	if e.Inode != 0 && c.Args.Netns == e.Netns && link.NetnsInode(e.Netns) != e.Inode {
		c.Log.Warn("treating the network namespace as gone: the process that the path names is another one than at ADD", "netns", e.Netns)
		c.Args.Netns = ""
	}
	r := c.Removal(e)
	r.Netns = c.Args.Netns // the runtime's path is current; it is empty if the namespace is gone
	if err := addNamed(c, r); err != nil {
		return err
	}
	return r.Run()
}

// usableNetns returns an error if delegates must not get CNI_NETNS: there is no network namespace at this path, or it is this
// process's own, where they would look for the pod's interface.
func usableNetns(args *Args) error {
	if args.Netns == "" {
		return nil
	}
	if !filepath.IsAbs(args.Netns) {
		return fmt.Errorf("CNI_NETNS %q: is not an absolute path", args.Netns)
	}
	if there, err := link.HasNetns(args.Netns); err == nil && !there {
		return fmt.Errorf("CNI_NETNS %s: no network namespace is there", args.Netns)
	}
	return ownNetns(args)
}

// addNamed also removes the device-info file that the runtime names, which may differ from that of the entry.
func addNamed(c *Call, r *cleanup.Removal) error {
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

// Reconstruct fills in a missing or corrupt entry as ADD of a network without delegates would have written it.
func Reconstruct(c *Call, e *journal.Entry) {
	_, spec, err := c.wantedSpec()
	if err != nil {
		c.Log.Warn("ignoring the CDI spec", "error", err) // ADD refuses such a spec, so it wrote none
	}
	if e.CDI.File == "" {
		e.CDI = spec
	}
	e.Pod, e.Requested.DeviceIDs = cmp.Or(e.Pod, c.Attachment.Pod().String()), c.Config.DeviceIDs
	e.CNIVersion, e.Args, e.Result = c.Config.CNIVersion, c.Args.CNIArgs, c.Config.PrevResult
}
