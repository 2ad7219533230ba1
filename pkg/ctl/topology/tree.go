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
	for _, g := range t.elsewhere() {
		b.WriteString(g.title + "\n")
		for n, a := range g.list {
			b.WriteString(strings.TrimRight(branch(n, len(g.list))+a.name()+"  "+a.Type+" "+a.Device, " ") + a.condition() + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tree writes a node; indent is what its sub-lines begin with.
func (n *Node) tree(b *strings.Builder, indent string) {
	b.WriteString(n.Name + "  " + strings.Join(n.facts(), ", ") + "\n")
	lines := len(n.Attachments) + len(n.Below)
	for i, a := range n.Attachments {
		b.WriteString(indent + branch(i, lines) + a.relation() + a.String() + "\n")
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
