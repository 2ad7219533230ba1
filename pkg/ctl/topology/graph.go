package topology

import (
	"fmt"
	"io"
	"strings"
)

// A shape is how a node looks: a device is a box, an attachment is round and has the
// colour of its health.
type shape struct {
	round  bool
	health Health
}

// A syntax is a language for graphs: how it says each thing.
type syntax struct {
	head, tail string
	node       func(id string, lines []string, as shape) string
	edge       func(from, to string) string
	tie        func(from, to string) string // an edge of another sort: representors
}

// DOT writes the picture in Graphviz' language.
func (t *Topology) DOT(w io.Writer) error {
	return t.graph(w, syntax{
		head: "digraph devices {\n  rankdir=LR;\n  node [shape=box, fontname=\"monospace\"];\n",
		tail: "}\n",
		node: func(id string, lines []string, as shape) string {
			style := ""
			if as.round {
				style = ", shape=ellipse"
			}
			if as.health != "" {
				style += ", color=" + map[Health]string{Good: "green3", Pending: "orange", Bad: "red"}[as.health]
			}
			return fmt.Sprintf("  %s [label=\"%s\"%s];\n", id, strings.Join(each(lines, dotText.Replace), `\n`), style)
		},
		edge: func(from, to string) string { return fmt.Sprintf("  %s -> %s;\n", from, to) },
		tie:  func(from, to string) string { return fmt.Sprintf("  %s -> %s [style=dashed, dir=none];\n", from, to) },
	})
}

// Mermaid writes the picture in Mermaid's language, a flowchart.
func (t *Topology) Mermaid(w io.Writer) error {
	return t.graph(w, syntax{
		head: "flowchart LR\n" +
			"  classDef good stroke:#2a2\n  classDef pending stroke:#e90\n  classDef bad stroke:#d22\n",
		node: func(id string, lines []string, as shape) string {
			open, end := "[", "]"
			if as.round {
				open, end = "([", "])"
			}
			if as.health != "" {
				end += ":::" + string(as.health)
			}
			return fmt.Sprintf("  %s%s\"%s\"%s\n", id, open, strings.Join(each(lines, mermaidText.Replace), "<br/>"), end)
		},
		edge: func(from, to string) string { return fmt.Sprintf("  %s --> %s\n", from, to) },
		tie:  func(from, to string) string { return fmt.Sprintf("  %s -.- %s\n", from, to) },
	})
}

// dotText is for double-quoted strings, mermaidText for quoted labels, where only an
// entity code stands for a character that means something.
var (
	dotText     = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ")
	mermaidText = strings.NewReplacer(`"`, "#quot;", "#", "#35;", "&", "#amp;", "<", "#lt;", ">", "#gt;", "`", "#96;", `\`, "#92;", "\n", " ")
)

func each(lines []string, f func(string) string) []string {
	out := make([]string, len(lines))
	for i, line := range lines {
		out[i] = f(line)
	}
	return out
}

// graph writes the picture. Nodes are numbered: their names mean nothing to the
// language.
func (t *Topology) graph(w io.Writer, s syntax) error {
	g := grapher{syntax: s}
	g.b.WriteString(s.head)
	for _, n := range t.Devices {
		g.draw(n, "")
	}
	for _, group := range t.elsewhere() {
		id := g.add([]string{group.title}, shape{}, "")
		for _, a := range group.list {
			g.attachment(a, id, deleteEmpty([]string{strings.TrimSpace(a.Type + " " + a.Device)})...)
		}
	}
	g.b.WriteString(s.tail)
	_, err := io.WriteString(w, g.b.String())
	return err
}

type grapher struct {
	syntax
	b     strings.Builder
	nodes int
}

// draw draws a device below the one with the id parent, "" being none.
func (g *grapher) draw(n *Node, parent string) {
	facts := n.facts()
	if n.Representor != "" {
		facts = without(facts, "representor "+n.Representor)
	}
	id := g.add(append([]string{n.Name}, facts...), shape{}, parent)
	if n.Representor != "" {
		rep := g.add([]string{n.Representor, "representor"}, shape{}, "")
		g.b.WriteString(g.tie(id, rep))
	}
	for _, a := range n.Attachments {
		g.attachment(a, id)
	}
	for _, child := range n.Below {
		g.draw(child, id)
	}
}

func (g *grapher) attachment(a Attachment, parent string, more ...string) {
	g.add(append([]string{"attachment", a.String()}, more...), shape{true, a.Health}, parent)
}

func (g *grapher) add(lines []string, as shape, parent string) (id string) {
	id = fmt.Sprintf("n%d", g.nodes)
	g.nodes++
	g.b.WriteString(g.node(id, lines, as))
	if parent != "" {
		g.b.WriteString(g.edge(parent, id))
	}
	return id
}

func without(list []string, one string) (rest []string) {
	for _, s := range list {
		if s != one {
			rest = append(rest, s)
		}
	}
	return rest
}
