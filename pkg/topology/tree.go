package topology

import (
	"io"
	"strings"
)

// Tree writes the picture as indented lines, in UTF-8.
func (t *Topology) Tree(w io.Writer) error {
	var b strings.Builder
	for _, n := range t.Devices {
		n.tree(&b, "")
	}
	if len(t.Devices) == 0 {
		b.WriteString("no network device\n")
	}
	if len(t.Elsewhere) > 0 {
		b.WriteString("attachments to sockets, or to devices that are gone\n")
	}
	for n, a := range t.Elsewhere {
		b.WriteString(branch(n, len(t.Elsewhere)) + a.String() + "  " + strings.TrimSpace(a.Type+" "+a.Device) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tree writes a node; indent is what its sub-lines begin with.
func (n *Node) tree(b *strings.Builder, indent string) {
	b.WriteString(n.Name + "  " + strings.Join(n.facts(), ", ") + "\n")
	lines := len(n.Attachments) + len(n.Below)
	for i, a := range n.Attachments {
		by := "held by "
		if a.Ended != "" {
			by = "left by "
		}
		b.WriteString(indent + branch(i, lines) + by + a.String() + "\n")
	}
	for i, child := range n.Below {
		i += len(n.Attachments)
		b.WriteString(indent + branch(i, lines))
		deeper := "│  "
		if i == lines-1 {
			deeper = "   "
		}
		child.tree(b, indent+deeper)
	}
}

func branch(i, of int) string {
	if i == of-1 {
		return "└─ "
	}
	return "├─ "
}
