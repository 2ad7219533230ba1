package topology

import (
	"fmt"
	"strings"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/ctl/remedy"
)

// dotText is for double-quoted strings.
var dotText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ")

// DOT is the picture in Graphviz' language. A device is a box, an attachment is round and
// has the colour of its health. Nodes are numbered: their names mean nothing to the language.
func (t *Topology) DOT() string {
	var g grapher
	g.b.WriteString("digraph devices {\n  rankdir=LR;\n  node [shape=box, fontname=\"monospace\"];\n")
	for _, n := range t.Devices {
		g.draw(n, "")
	}
	for _, group := range t.elsewhere() {
		id := g.add([]string{group.title}, "", "")
		for _, a := range group.list {
			g.attachment(a, id, deleteEmpty([]string{strings.TrimSpace(a.Type + " " + a.Device)})...)
		}
	}
	return g.b.String() + "}\n"
}

type grapher struct {
	b     strings.Builder
	nodes int
}

// draw draws a device below the one with the id parent, "" being none.
func (g *grapher) draw(n *Node, parent string) {
	bare := *n
	bare.Representor = "" // which has a box of its own
	id := g.add(append([]string{n.Name}, bare.facts()...), "", parent)
	if n.Representor != "" {
		rep := g.add([]string{n.Representor, "representor"}, "", "")
		fmt.Fprintf(&g.b, "  %s -> %s [style=dashed, dir=none];\n", id, rep)
	}
	for _, a := range n.Attachments {
		g.attachment(a, id)
	}
	for _, child := range n.Below {
		g.draw(child, id)
	}
}

func (g *grapher) attachment(a node.Attachment, parent string, more ...string) {
	text := name(a)
	if HealthOf(a.State) != Good {
		text += ": " + string(a.State)
	}
	style := ", shape=ellipse, color=" + map[Health]string{Good: "green3", Pending: "orange", Bad: "red"}[HealthOf(a.State)]
	g.add(append([]string{"attachment", text}, more...), style, parent)
}

func (g *grapher) add(lines []string, style, parent string) (id string) {
	id = fmt.Sprintf("n%d", g.nodes)
	g.nodes++
	for n := range lines {
		lines[n] = remedy.Printable(dotText.Replace(lines[n]))
	}
	fmt.Fprintf(&g.b, "  %s [label=\"%s\"%s];\n", id, strings.Join(lines, `\n`), style)
	if parent != "" {
		fmt.Fprintf(&g.b, "  %s -> %s;\n", parent, id)
	}
	return id
}
