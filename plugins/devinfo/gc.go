package plugin

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// Collect deletes the attachments of this network that the runtime does not list, as DEL does. reconstruct fills in corrupt
// entries. A failure does not stop the rest.
//
// CRI-O and cnitool pass no list if they know no attachments. Collect then deletes only stale attachments.
func Collect(c *Call, reconstruct func(*Call, *journal.Entry)) (errs []error) {
	listed := make(map[types.GCAttachment]bool, len(c.Config.Valid))
	for _, v := range c.Config.Valid {
		listed[v] = true
	}
	keys, err := c.Journal.All()
	errs = append(errs, err)
	for _, key := range keys {
		if key.Network != c.Config.Name || listed[types.GCAttachment{ContainerID: key.ContainerID, IfName: key.IfName}] {
			continue
		}
		e, err := c.Journal.Get(key)
		if err != nil && !errors.As(err, new(*store.CorruptError)) {
			errs = append(errs, fmt.Errorf("attachment %s: %w", key, err))
		} else if c.Config.Valid != nil || c.Stale(e) {
			_, err := c.Cleaner.Collect(key, e, func(e *journal.Entry) { reconstruct(about(c, key), e) })
			errs = append(errs, err)
		}
	}
	return errs
}

// about returns the call that a DEL of another attachment of the network would be.
func about(c *Call, key journal.Key) *Call {
	cfg := &config.Config{Name: key.Network, Type: c.Config.Type, CNIVersion: c.Config.CNIVersion, Delegates: c.Config.Delegates}
	return c.call(cfg, &Args{Args: attachment.Args{ContainerID: key.ContainerID, IfName: key.IfName}, Path: c.Args.Path})
}
