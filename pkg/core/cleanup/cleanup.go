// Package cleanup ends attachments by their journal entries: for the plugin's DEL and GC, for an ADD that fails or
// follows a former one, for devinfo-agent and for devinfoctl gc. It needs neither the configuration nor the runtime.
package cleanup

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

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
	Log     *slog.Logger     // names the attachment if the caller is about one, see About

	CNIPath string // directories of the delegates, separated by colons
	Root    string // root directory of the delegates, such as the host's in a container; "" = this process's root
	Listen  func() // called before delegates run; nil = nothing to do

	// Wait is the time for which a call waits for another call of the attachment, or for a delegate whose devinfo was killed.
	Wait  time.Duration
	Limit time.Duration // for one delegate
}

// New returns a cleaner for a node's settings. It opens and creates nothing.
func New(node config.Node, finder discovery.Finder, bootID string, log *slog.Logger) *Cleaner {
	return &Cleaner{
		Node: node, Journal: journal.Open(node.StateDir, bootID), Finder: finder, Log: log,
		Wait: 30 * time.Second, Limit: 4 * time.Minute, // kubelets and runtimes give up sooner
	}
}

// About returns the cleaner with a log that names the attachment.
func (c *Cleaner) About(key journal.Key) *Cleaner {
	about := *c
	about.Log = c.Log.With("attachment", key.String())
	return &about
}

// Stale reports whether an attachment can no longer be in use. It returns false if that is unknown or e is nil.
func (c *Cleaner) Stale(e *journal.Entry) bool {
	if e == nil {
		return false
	}
	why, err := c.Journal.Stale(e)
	if err != nil && !errors.Is(err, journal.ErrDelPending) {
		c.Log.Warn("cannot tell whether the attachment is stale", "error", err)
	}
	return err == nil && why != ""
}

// Lock returns the attachment's journal entry, locked, or nil if the journal has none. A corrupt entry is a
// [*store.CorruptError] together with a locked entry that has only the key.
//
// A delegate that has run for its limit and whose devinfo was killed is ended, because nobody else would end it.
func (c *Cleaner) Lock(key journal.Key) (*journal.Entry, error) {
	e, err := c.Journal.Lock(context.Background(), key, 0)
	busy := new(store.BusyError)
	if !errors.As(err, &busy) {
		return e, err
	}
	ended, failed := cniexec.EndAbandoned(busy.Holders, within(key), c.Limit)
	if ended {
		c.Log.Warn("ended a delegate that hung, because the devinfo that had started it was killed", "reason", busy.Error())
	} else if failed != nil {
		c.Log.Warn("cannot end a delegate that may hang", "error", failed)
	}
	e, err = c.Journal.Lock(context.Background(), key, c.Wait)
	if errors.As(err, &busy) {
		err = failure.New(failure.TryAgain, fmt.Errorf("an earlier call for this attachment is still running: %w", err),
			fmt.Sprintf("try again; a delegate whose devinfo was killed is ended after %v", c.Limit))
	}
	return e, err
}

// LockAnyway is like Lock, for calls that modify the attachment. If the entry is corrupt, it logs a warning and returns
// an entry with the facts that the leases still show, see [journal.Entry.Lost].
func (c *Cleaner) LockAnyway(key journal.Key) (*journal.Entry, error) {
	e, err := c.Lock(key)
	if !errors.As(err, new(*store.CorruptError)) {
		return e, err
	}
	c.Log.Warn("journal entry ignored", "error", err)
	if err := c.Journal.FillFromLeases(e); err != nil {
		e.Unlock()
		return nil, err
	}
	e.Dir, e.CDI.Dir = c.Node.DeviceInfoDir, c.Node.CDIDir
	return e, nil
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
		return g, failure.Translate(err)
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
		case !c.About(key).Stale(e):
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
	c = c.About(key)
	c.Wait = time.Second // garbage collection waits for each of many attachments, and the next one finds what this one has left
	e, err := c.LockAnyway(key)
	defer e.Unlock()
	switch {
	case err != nil || e == nil: // DEL has removed it
	case e.Lost() != (judged == nil) || !e.Lost() && !e.Same(judged):
		c.Log.Info("not collected, because the attachment was added again")
	default:
		if e.Lost() {
			complete(e)
		}
		r := c.Removal(e)
		if why, err := c.Journal.Stale(e); err != nil || why != "" || link.NetnsNamesProcess(e.Netns) {
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
