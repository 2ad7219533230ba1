package node

import (
	"fmt"
	"path/filepath"
	"slices"

	"devinfo-cni.io/pkg/audit"
	cniplugin "devinfo-cni.io/plugins/devinfo"
)

// Garbage is what is left of attachments that nobody can use any more.
type Garbage struct {
	Orphans   []Orphan `json:"orphans"`
	Skipped   []Orphan `json:"skipped,omitempty"`   // may be orphans, but must not be touched
	Unclaimed []string `json:"unclaimed,omitempty"` // device-info files that no attachment claims
}

// Orphan is an attachment and what is left of it.
type Orphan struct {
	Attachment string   `json:"attachment"`
	Why        string   `json:"why"`
	Delegates  []string `json:"delegates,omitempty"` // whose DEL is run, in this order
	Files      []string `json:"files,omitempty"`
	Removed    bool     `json:"removed,omitempty"`
	Error      string   `json:"error,omitempty"`
	Left       []string `json:"left,omitempty"` // of the files, after --yes; a warning says why

	of Attachment
}

// Garbage looks for it.
func (n *Node) Garbage() (*Garbage, error) {
	list, err := n.journaled()
	if err != nil {
		return nil, err
	}
	g := &Garbage{Orphans: []Orphan{}}
	for _, a := range list {
		o := Orphan{Attachment: a.String(), Why: a.Why, of: a}
		switch a.State {
		case audit.Orphan, audit.NetnsGone:
			o.Delegates = audit.Delegates(a.entry)
			slices.Reverse(o.Delegates)
			o.Files = n.filesOf(a)
			g.Orphans = append(g.Orphans, o)
		case audit.Corrupt:
			o.Why += "; nothing tells whether it is used: its DEL removes it, and the runtime's GC"
			g.Skipped = append(g.Skipped, o)
		case audit.Unknown, audit.Newer:
			g.Skipped = append(g.Skipped, o)
		}
	}
	g.Unclaimed, err = n.Unclaimed()
	return g, err
}

// filesOf are the files that are there, and that the plugin would remove.
func (n *Node) filesOf(a Attachment) (files []string) {
	for _, e := range a.entry.All() {
		if e.File != "" && n.FileThere(e.Path()) {
			if owner, owned, err := n.journal.Owner(e.File); err == nil && (!owned || owner == a.Key) {
				files = append(files, e.Path())
			}
		}
		if spec := filepath.Join(e.CDI.Dir, e.CDI.File); e.CDI.File != "" && n.FileThere(spec) {
			if owner, owned, err := n.journal.SpecOwner(e.CDI.File); err == nil && (!owned || owner == a.Key) {
				files = append(files, spec)
			}
		}
	}
	return append(files, filepath.Join(n.Settings.StateDir, "attachments", a.Network+"@"+a.ContainerID+"@"+a.IfName))
}

// Unclaimed are the node's device-info files that belong to none of our attachments.
func (n *Node) Unclaimed() (paths []string, err error) {
	names, err := n.infos.Names()
	if err != nil {
		return nil, fmt.Errorf("device-info files: %w", err)
	}
	for _, name := range names {
		if _, owned, err := n.journal.Owner(name); err != nil {
			return nil, n.journalError(err)
		} else if !owned {
			paths = append(paths, filepath.Join(n.Settings.DeviceInfoDir, name))
		}
	}
	return paths, nil
}

// Collect removes an orphan by the plugin, unless it is in use again.
func (n *Node) Collect(p *cniplugin.Plugin, o *Orphan, cniPath string) error {
	now, there, err := n.attachment(o.of.Key)
	switch {
	case err != nil:
		return err
	case !there: // its DEL has come
		o.Removed = true
		return nil
	case now.State != audit.Orphan && now.State != audit.NetnsGone:
		return fmt.Errorf("left alone: it is in use again (%s)", now.State)
	}
	if err := p.Collect(o.of.Key, cniPath); err != nil {
		return err
	}
	o.Removed = true
	return nil
}
