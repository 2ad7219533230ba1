package node

import "devinfo-cni.io/pkg/core/check"

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
