package node

import (
	"fmt"
	"path/filepath"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/journal"
)

// Garbage contains the stale attachments of a node.
type Garbage struct {
	Stale []Attachment `json:"stale"`
	Kept  []Attachment `json:"kept,omitempty"` // perhaps stale, but they cannot be read or judged
}

func (n *Node) Garbage() (*Garbage, error) {
	list, err := n.journaled()
	g := &Garbage{Stale: []Attachment{}}
	for _, a := range list {
		switch a.State {
		case check.Stale:
			g.Stale = append(g.Stale, a)
		case check.Corrupt, check.Unknown, check.Newer:
			g.Kept = append(g.Kept, a)
		}
	}
	return g, err
}

// Unowned returns the node's device-info files that belong to none of the attachments in the list, which must
// be complete.
func (n *Node) Unowned(list []Attachment) (paths []string, err error) {
	names, err := n.infos.Names()
	if err != nil {
		return nil, fmt.Errorf("device-info files: %w", err)
	}
	owned := map[string]bool{}
	for _, a := range list {
		switch {
		case a.entry != nil: // also for stale attachments
			owned[a.entry.File] = true
		case a.File != "": // cni-dra-driver wrote it for a claim
			owned[filepath.Base(a.File)] = true
		default: // unreadable and perhaps in use: keep the file of the default name
			owned[attachment.FileName(a.Network, a.ContainerID, a.IfName)] = true
		}
	}
	for _, name := range names {
		if owned[name] { // its leases need not be read
			continue
		}
		if owner, err := n.journal.Owner(journal.OfFile, name); err != nil {
			return nil, n.journalError(err)
		} else if owner == nil {
			paths = append(paths, filepath.Join(n.Settings.DeviceInfoDir, name))
		}
	}
	return paths, nil
}
