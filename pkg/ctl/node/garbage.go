package node

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/journal"
)

// Garbage contains the stale attachments of a node and their leftovers.
type Garbage struct {
	Stale   []Stale  `json:"stale"`
	Skipped []Stale  `json:"skipped,omitempty"` // possibly stale, but must stay
	Unowned []string `json:"unowned,omitempty"` // device-info files that no attachment owns
}

// Stale is a stale attachment and its leftovers.
type Stale struct {
	Attachment string   `json:"attachment"`
	Why        string   `json:"why"`
	Delegates  []string `json:"delegates,omitempty"` // delegates, in the order of their DELs
	Files      []string `json:"files,omitempty"`
	Removed    bool     `json:"removed,omitempty"`
	Error      string   `json:"error,omitempty"`
	Left       []string `json:"left,omitempty"` // files that --yes could not remove

	Title string `json:"-"` // the attachment, for people
	of    Attachment
}

func (n *Node) Garbage() (*Garbage, error) {
	list, err := n.journaled()
	if err != nil {
		return nil, err
	}
	g := &Garbage{Stale: []Stale{}}
	for _, a := range list {
		o := Stale{Title: a.Short(), Attachment: a.String(), Why: a.Why, of: a}
		switch a.State {
		case check.Stale:
			o.Delegates = check.Delegates(a.entry)
			slices.Reverse(o.Delegates)
			o.Files = n.filesOf(a)
			g.Stale = append(g.Stale, o)
		case check.Corrupt:
			o.Why += "; the attachment may still be in use, so this command keeps it; its DEL or the runtime's GC removes it"
			g.Skipped = append(g.Skipped, o)
		case check.Unknown, check.Newer:
			g.Skipped = append(g.Skipped, o)
		}
	}
	claimed, err := n.claimed()
	if err != nil {
		return nil, err
	}
	g.Unowned, err = n.Unowned(append(list, claimed...))
	return g, err
}

// filesOf returns the existing files that the plugin would remove.
func (n *Node) filesOf(a Attachment) (files []string) {
	e := a.entry
	add := func(kind journal.Kind, name, path string) {
		if name == "" || !n.FileThere(path) {
			return
		}
		if owner, err := n.journal.Owner(kind, name); err == nil && (owner == nil || *owner == a.Key) {
			files = append(files, path)
		}
	}
	add(journal.OfFile, e.File, e.Path())
	add(journal.OfSpec, e.CDI.File, filepath.Join(e.CDI.Dir, e.CDI.File))
	return append(files, a.Key.Path(n.Settings.StateDir))
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

// Collect removes a stale attachment. remove must make the plugin delete the journal entry. Collect returns an
// error if the attachment was added again.
func (n *Node) Collect(o *Stale, remove func(*journal.Entry) (done bool, err error)) error {
	done, err := remove(o.of.entry)
	if err != nil {
		return err
	}
	if now, err := n.journal.Get(o.of.Key); err == nil && now != nil && !done {
		return errors.New("not collected, because the attachment was added again")
	}
	o.Removed = true
	return nil
}
