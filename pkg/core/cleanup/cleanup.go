// Package cleanup ends attachments by their journal entries: for the plugin's DEL and GC, for an ADD that fails or
// follows a former one, for devinfo-agent and for devinfoctl gc. It needs neither the configuration nor the runtime.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/safefile"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Cleaner ends attachments of one node.
type Cleaner struct {
	Node    config.Node
	Journal *journal.Journal
	Sys     *sysfs.FS // nil = unknown
	BootID  string    // "" = unknown
	Log     *slog.Logger

	CNIPath string // directories of the delegates, separated by colons
	Root    string // root directory of the delegates, such as the host's in a container; "" = this process's root
	Listen  func() // called before delegates run; nil = nothing to do
}

// New returns a cleaner for a node's settings. It opens and creates nothing.
func New(node config.Node, sys *sysfs.FS, bootID string, log *slog.Logger) *Cleaner {
	return &Cleaner{Node: node, Journal: journal.Open(node.StateDir, bootID), Sys: sys, BootID: bootID, Log: log}
}

// Stale reports whether an attachment can no longer be in use. It returns false if that is unknown or e is nil.
func (c *Cleaner) Stale(e *journal.Entry) bool {
	if e == nil {
		return false
	}
	a := check.Checker{NetnsGone: link.NetnsGone, BootID: c.BootID}
	why, err := a.StaleReason(e)
	if err != nil {
		c.Log.Warn("cannot tell whether the attachment is stale", "attachment", e.Key.String(), "error", err)
	}
	return err == nil && why != ""
}

const lockWait = 30 * time.Second // wait for another call of the attachment, or for a delegate whose devinfo was killed

// Lock returns the attachment's journal entry, locked, or nil if the journal has none. A corrupt entry is a
// [*store.CorruptError] together with a locked entry that has only the key.
func (c *Cleaner) Lock(key journal.Key) (*journal.Entry, error) {
	e, err := c.Journal.Lock(context.Background(), key, lockWait)
	if errors.As(err, new(*safefile.BusyError)) {
		err = failure.New(failure.TryAgain, fmt.Errorf("an earlier call for this attachment is still running: %w", err), "try again; if the error stays, find out why that process hangs")
	}
	return e, err
}

// LockAnyway is like Lock, for calls that modify the attachment. If the entry is corrupt, it logs a warning and returns
// an entry with the facts that the leases still show. corrupt is true in that case.
func (c *Cleaner) LockAnyway(key journal.Key) (e *journal.Entry, corrupt bool, err error) {
	e, err = c.Lock(key)
	if !errors.As(err, new(*store.CorruptError)) {
		return e, false, err
	}
	c.Log.Warn("journal entry ignored", "attachment", key.String(), "error", err)
	if err := c.Journal.FillFromLeases(e); err != nil {
		e.Unlock()
		return nil, false, err
	}
	e.Dir, e.CDI.Dir = c.Node.DeviceInfoDir, c.Node.CDIDir
	return e, true, nil
}

// Foreign returns the reason why a device-info file or a CDI spec belongs to another attachment: that attachment
// holds a lease of it, or a device-info file is named after another container. It returns "" if neither is true.
func (c *Cleaner) Foreign(key journal.Key, kind journal.Kind, name string) (why string, err error) {
	owner, err := c.Journal.Owner(kind, name)
	switch {
	case err != nil || owner != nil && *owner == key:
	case owner != nil:
		why = "belongs to attachment " + owner.String()
	case kind == journal.OfFile && attachment.BelongsToOtherContainer(name, key.ContainerID):
		why = "is named after another container"
	}
	return why, err
}
