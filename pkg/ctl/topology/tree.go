package topology

import (
	"strings"

	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/ctl/remedy"
)

// Tree is the picture as indented lines, in UTF-8, that are safe for a terminal. States that are
// not good are at their ends, as paint gives them.
func (t *Topology) Tree(paint func(check.State) string) string {
	d := drawing{paint: paint}
	for _, n := range t.Devices {
		d.tree(n, "", "")
	}
	if len(t.Devices) == 0 {
		d.line("no network device", "")
	}
	for _, g := range t.elsewhere() {
		d.line(g.title, "")
		for n, a := range g.list {
			d.line(strings.TrimRight(branch(n, len(g.list))+name(a)+"  "+a.Type+" "+a.Device, " "), a.State)
		}
	}
	return d.text.String()
}

type drawing struct {
	text  strings.Builder
	paint func(check.State) string
}

func (d *drawing) line(text string, s check.State) {
	d.text.WriteString(remedy.Printable(text))
	if s != check.OK && s != "" { // "" = somebody else attaches it
		d.text.WriteString(": " + d.paint(s))
	}
	d.text.WriteByte('\n')
}

// tree draws a node behind what stands before it; indent is what its further lines begin with.
func (d *drawing) tree(n *Node, before, indent string) {
	d.line(before+n.Name+"  "+strings.Join(n.facts(), ", "), "")
	lines := len(n.Attachments) + len(n.Below)
	for i, a := range n.Attachments {
		d.line(indent+branch(i, lines)+relation(a)+name(a), a.State)
	}
	for i, child := range n.Below {
		i += len(n.Attachments)
		deeper := "│  "
		if i == lines-1 {
			deeper = "   "
		}
		d.tree(child, indent+branch(i, lines), indent+deeper)
	}
}

func branch(i, of int) string {
	if i == of-1 {
		return "└─ "
	}
	return "├─ "
}
