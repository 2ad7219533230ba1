// Package cleanup ends attachments by their journal entries: for the plugin's DEL and GC, for an ADD that fails or
// follows a former one, for devinfo-agent and for devinfoctl gc. It needs neither the configuration nor the runtime.
package cleanup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"syscall"
	"time"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
)

// Cleaner ends attachments of one node.
type Cleaner struct {
	Node    config.Node
	Journal *journal.Journal
	Finder  discovery.Finder // of the devices that configurations name; without Sys = unknown
	BootID  string           // "" = unknown
	Log     *slog.Logger

	CNIPath string // directories of the delegates, separated by colons
	Root    string // root directory of the delegates, such as the host's in a container; "" = this process's root
	Listen  func() // called before delegates run; nil = nothing to do
}

// New returns a cleaner for a node's settings. It opens and creates nothing.
func New(node config.Node, finder discovery.Finder, bootID string, log *slog.Logger) *Cleaner {
	return &Cleaner{Node: node, Journal: journal.Open(node.StateDir, bootID), Finder: finder, BootID: bootID, Log: log}
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

// Times for which a call waits for another call of the attachment, or for a delegate whose devinfo was killed. Garbage
// collection waits for each of many attachments, and the next one finds what this one has left.
const lockWait, collectWait = 30 * time.Second, time.Second

// Lock returns the attachment's journal entry, locked, or nil if the journal has none. A corrupt entry is a
// [*store.CorruptError] together with a locked entry that has only the key.
//
// A delegate that has run for its limit and whose devinfo was killed is ended, because nobody else would end it.
func (c *Cleaner) Lock(key journal.Key) (*journal.Entry, error) {
	return c.lock(key, lockWait, delegateLimit)
}

func (c *Cleaner) lock(key journal.Key, wait, limit time.Duration) (*journal.Entry, error) {
	e, err := c.Journal.Lock(context.Background(), key, 0)
	busy := new(store.BusyError)
	if !errors.As(err, &busy) {
		return e, err
	}
	ended, failed := cniexec.EndAbandoned(busy.Holders, within(key), limit)
	if ended {
		c.Log.Warn("ended a delegate that hung, because the devinfo that had started it was killed", "attachment", key.String(), "reason", busy.Error())
	} else if failed != nil {
		c.Log.Warn("cannot end a delegate that may hang", "attachment", key.String(), "error", failed)
	}
	e, err = c.Journal.Lock(context.Background(), key, wait)
	if errors.As(err, &busy) {
		err = failure.New(failure.TryAgain, fmt.Errorf("an earlier call for this attachment is still running: %w", err),
			fmt.Sprintf("try again; a delegate whose devinfo was killed is ended after %v", limit))
	}
	return e, err
}

// LockAnyway is like Lock, for calls that modify the attachment. If the entry is corrupt, it logs a warning and returns
// an entry with the facts that the leases still show. corrupt is true in that case.
func (c *Cleaner) LockAnyway(key journal.Key) (e *journal.Entry, corrupt bool, err error) {
	return c.lockAnyway(key, lockWait)
}

func (c *Cleaner) lockAnyway(key journal.Key, wait time.Duration) (e *journal.Entry, corrupt bool, err error) {
	e, err = c.lock(key, wait, delegateLimit)
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

// Garbage is the result of CollectStale.
type Garbage struct {
	Collected int // stale attachments that were deleted
	Left      int // stale attachments with delegates, which only the runtime can delete
	Swept     int // leftover files that were removed
}

// CollectStale deletes the stale attachments of all networks, and then sweeps. It is for a long-running caller
// other than a runtime. If delegates is false, attachments with delegates are kept, because the caller cannot
// run delegates. CollectStale calls rest before each attachment. It stops early, without an error, when ctx
// ends. A CNI error, of type *types.Error, contains all failures.
func (c *Cleaner) CollectStale(ctx context.Context, delegates bool, rest func(context.Context)) (g Garbage, err error) {
	if err := c.Journal.Own(); err != nil {
		return g, failure.Translate(failure.New(failure.Config, err, journal.OwnRemedy))
	}
	keys, err := c.Journal.All()
	errs := []error{err}
	for _, key := range keys {
		rest(ctx)
		if ctx.Err() != nil {
			break
		}
		e, err := c.Journal.Get(key)
		switch {
		case errors.As(err, new(*store.CorruptError)), errors.As(err, new(*journal.FormatError)): // the entry cannot be read, so it is kept
		case err != nil:
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
		case !c.Stale(e):
		case len(e.Delegates) > 0 && !delegates:
			g.Left++
		default:
			done, err := c.Collect(key, e, nil)
			errs = append(errs, err)
			if done {
				g.Collected++
			}
		}
	}
	errs = append(errs, c.Sweep(func() { g.Swept++ }))
	return g, failure.Translate(failure.Join(errs...))
}

// Collect deletes one attachment by its journal entry, and returns true, unless the entry has changed since the caller
// read it. judged is the entry that the caller read. If judged is nil, the entry is corrupt, and complete adds
// what the leases do not show. The lock on the entry prevents an ADD or DEL of the attachment meanwhile.
func (c *Cleaner) Collect(key journal.Key, judged *journal.Entry, complete func(*journal.Entry)) (done bool, err error) {
	e, corrupt, err := c.lockAnyway(key, collectWait)
	defer e.Unlock()
	switch {
	case err != nil || e == nil: // DEL has removed it
	case corrupt != (judged == nil) || !corrupt && !e.Same(judged):
		c.Log.Info("not collected, because the attachment was added again", "attachment", key.String())
	default:
		if corrupt {
			complete(e)
		}
		r := c.Removal(e)
		if there, err := link.HasNetns(e.Netns); err != nil || !there || !e.OfBoot(c.BootID) || link.NetnsNamesProcess(e.Netns) {
			r.Netns = "" // the delegates must not get the path: it leads nowhere, or perhaps to another pod's namespace
		}
		done, err = true, r.Run()
	}
	if err != nil {
		return false, fmt.Errorf("attachment %s: %w", key, err)
	}
	return done, nil
}

// Sweep removes files that killed calls left and that no journal entry mentions: leases, records, caches and
// temporary files. It calls removed for each.
func (c *Cleaner) Sweep(removed func()) error {
	swept := func(dir string) func(string) {
		return func(name string) {
			c.Log.Info("removed a leftover file", "directory", dir, "name", name)
			removed()
		}
	}
	return errors.Join(
		c.Journal.Sweep(swept(c.Node.StateDir)),
		store.Open(c.Node.DeviceInfoDir).Sweep(swept(c.Node.DeviceInfoDir)),
		store.Open(c.Node.CDIDir).Sweep(swept(c.Node.CDIDir)))
}

// A Removal ends one attachment. [Cleaner.Removal] fills its fields from the journal entry; the caller replaces
// those that it knows better.
type Removal struct {
	*Cleaner
	Log *slog.Logger

	Entry *journal.Entry // locked, or not in the journal but reconstructed

	Netns     string            // network namespace for the delegates' DEL; "" = gone
	Delegates []json.RawMessage // the delegates that need a DEL
	Result    json.RawMessage   // the last delegate's result
	Dir, File string            // the device-info file

	RestoreFile func() error // called instead of removing the device-info file; nil = remove it
}

func (c *Cleaner) Removal(e *journal.Entry) *Removal {
	return &Removal{
		Cleaner: c, Log: c.Log.With("attachment", e.Key.String()), Entry: e,
		Netns: e.Netns, Delegates: e.Delegates, Result: e.Result, Dir: e.Dir, File: e.File,
	}
}

// Run runs the delegates' DEL in reverse order, removes the CDI spec and the device-info file, and then releases the
// leases and removes the entry. Missing files and leases count as removed. A failure does not stop the rest, but
// keeps the entry.
func (r *Removal) Run() error {
	var errs []error
	if len(r.Delegates) > 0 {
		errs = r.delDelegates()
	}
	files := func() error { return failure.Join(r.RemoveSpec(), r.RemoveFile()) }
	if r.Entry.Locked() == nil {
		return failure.Join(append(errs, r.Journal.Unrecorded(r.Entry.Key, files))...)
	}
	if err := failure.Join(append(errs, files())...); err != nil {
		return err
	}
	return r.Journal.Forget(r.Entry)
}

// mayRemove reports whether a file belongs to this attachment. If it belongs to another one, mayRemove logs a warning.
func (r *Removal) mayRemove(kind journal.Kind, name string) (bool, error) {
	if r.Journal.Holds(r.Entry.Key, kind, name) {
		return true, nil
	}
	foreign, err := r.Foreign(r.Entry.Key, kind, name)
	if foreign != "" {
		r.Log.Warn("not removed: the "+kind.String()+" "+foreign, "file", name)
	}
	return err == nil && foreign == "", err
}

// RemoveFile removes the device-info file from the directory that was deviceInfoDir at ADD, or restores it.
func (r *Removal) RemoveFile() error {
	if r.File == "" {
		return nil
	}
	ours, err := r.mayRemove(journal.OfFile, r.File)
	if err != nil || !ours {
		return err
	}
	if r.RestoreFile != nil {
		return r.RestoreFile()
	}
	err = store.Open(r.Dir).Remove(r.File)
	if errors.Is(err, syscall.EISDIR) { // ADD refuses a directory too
		r.Log.Warn("device-info file not removed", "error", err)
		return nil
	}
	return err
}

// RemoveSpec removes the CDI spec from the directory that was cdiDir at ADD, unless another program wrote it.
func (r *Removal) RemoveSpec() error {
	spec := r.Entry.CDI
	if spec.File == "" {
		return nil
	}
	ours, err := r.mayRemove(journal.OfSpec, spec.File)
	if err != nil || !ours {
		return err
	}
	dir := store.Open(spec.Dir)
	_, err = check.ReadSpec(dir, spec.File)
	switch {
	case errors.As(err, new(syscall.Errno)):
		return err
	case err != nil: // ADD refuses it too
		r.Log.Warn("CDI spec not removed: devinfo did not write it", "error", err)
		return nil
	}
	return dir.Remove(spec.File)
}
