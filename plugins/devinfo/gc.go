package devinfo

import (
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// gc deletes the attachments that the runtime does not list, runs the delegates' GC, and sweeps leftover
// files. If the runtime passes no list, the delegates' GC does not run, because a delegate might take a missing list
// for an empty one. A failure does not stop the rest; all errors are reported.
func (c *Call) gc() error {
	if err := c.Journal.Own(); err != nil {
		return err
	}
	valid, errs := c.collect()
	if valid != nil && len(c.Config.Delegates) > 0 {
		n, err := c.network()
		errs = append(errs, err)
		if err == nil {
			for _, err := range n.GC(valid) {
				errs = append(errs, failure.OfDelegate("GC", err))
			}
		}
	}
	return failure.Join(append(errs, c.Sweep(func() {}))...)
}

// collect deletes the attachments of this network that the runtime does not list, as DEL does. It returns those that delegates
// must keep; nil = unknown, because the runtime passes no list, or the journal cannot be read.
//
// CRI-O and cnitool pass no list if they know no attachments. collect then deletes only stale attachments. Of those by a
// claim it never deletes others: cni-dra-driver has added them, and no runtime lists them.
func (c *Call) collect() (valid []types.GCAttachment, errs []error) {
	listed := make(map[types.GCAttachment]bool, len(c.Config.Valid))
	for _, v := range c.Config.Valid {
		listed[v] = true
	}
	keys, unread := c.Journal.All()
	errs = append(errs, unread)
	kept := slices.Clone(c.Config.Valid)
	for _, key := range keys {
		this := types.GCAttachment{ContainerID: key.ContainerID, IfName: key.IfName}
		if key.Network != c.Config.Name || listed[this] {
			continue
		}
		e, err := c.Journal.Get(key)
		byClaim := e != nil && e.ByClaim()
		switch {
		case err != nil && !errors.As(err, new(*store.CorruptError)):
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
			kept = append(kept, this)
		case c.Config.Valid != nil && !byClaim || c.About(key).Stale(e):
			_, err := c.Collect(key, e, func(e *journal.Entry) { c.deletion(key).reconstruct(e) })
			errs = append(errs, err)
		default:
			kept = append(kept, this)
		}
	}
	if c.Config.Valid == nil || unread != nil {
		return nil, errs
	}
	return kept, errs
}

// deletion returns the call that a DEL of another attachment of the network would be.
func (c *Call) deletion(key journal.Key) *Call {
	cfg := &config.Config{Name: key.Network, Type: c.Config.Type, CNIVersion: c.Config.CNIVersion, Delegates: c.Config.Delegates}
	return about(&c.Host, attachment.Args{ContainerID: key.ContainerID, IfName: key.IfName}, cfg)
}
