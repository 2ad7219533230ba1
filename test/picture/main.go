// Command picture draws docs/*.svg from the descriptions *.txt of this folder. Run it in the root of the repository.
// A description has one statement a line:
//
//	label TEXT                      the text for readers who do not see the picture
//	part NAME: TITLE | LINE ...     an actor of a sequence, from left to right; "ours" instead of "part" if it is ours
//	A -> B: TEXT                    a message; "A: TEXT | LINE ..." is what an actor does by itself
//	box NAME X Y W H CLASS: TITLE | LINE ...  a box with at least this height
//	bar CLASS N: TITLE | TEXT       a bar of N units below the one before
//	A.right -> B.left: TEXT         an arrow between the middles of two sides; " -- " instead of " -> " has no head
//
// In boxes, a line that begins with "= " names a key of the device-info file, and a first line with "- " is no title.
package main

import (
	"embed"
	"fmt"
	"html"
	"os"
	"strconv"
	"strings"
)

//go:embed *.txt
var descriptions embed.FS

// names are the pictures: NAME.txt becomes docs/NAME.svg.
var names = []string{"parts", "podstart", "claim", "switchdev", "podcost"}

// style follows the reader's colour scheme. The background makes the picture readable where the page around it does not.
const style = `text{font:13px sans-serif;fill:#1f2328;paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}
.box text{stroke:none}.title{font-weight:bold}.line{font-size:12px;fill:#59636e}.key{font:bold 12px monospace;fill:#0550ae}.mid{text-anchor:middle}
.page{fill:#fff}.group{fill:#f6f8fa;stroke:#818b98}.part{fill:#fff;stroke:#818b98}.ours{fill:#ddf4ff;stroke:#0969da}
path{fill:none;stroke:#59636e;stroke-width:1.5}.life{stroke-dasharray:4 4;stroke:#818b98;stroke-width:1}.head{marker-end:url(#head)}#head path{fill:#59636e;stroke:none}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc;stroke:#0d1117}.line{fill:#b7bfc8}.key{fill:#79c0ff}
.page,.part{fill:#0d1117}.group{fill:#151b23}.ours{fill:#121d2f;stroke:#4493f8}path{stroke:#9198a1}#head path{fill:#9198a1}}`

// A drawing collects the elements of a picture and its size.
type drawing struct {
	lives, under, over strings.Builder // the lines of actors; boxes and arrows; texts on arrows
	boxes              map[string]box
	width, height      int
	label              string
}

func (d *drawing) grow(x, y int) { d.width, d.height = max(d.width, x+8), max(d.height, y+8) }

func (d *drawing) text(x, y int, text string) {
	fmt.Fprintf(&d.over, `<text class="mid" x="%d" y="%d">%s</text>`+"\n", x, y, html.EscapeString(text))
}

func (d *drawing) path(class, format string, args ...any) {
	fmt.Fprintf(&d.under, `<path class="%s" d="%s"/>`+"\n", class, fmt.Sprintf(format, args...))
}

// A box is a rectangle with a title and lines.
type box struct {
	x, y, w, h int
	class      string
	lines      []string
}

func newBox(x, y, w int, class, text string) box {
	lines := strings.Split(text, " | ")
	return box{x, y, w, 12 + 18*len(lines), class, lines}
}

func (d *drawing) box(b box) {
	d.grow(b.x+b.w, b.y+b.h)
	fmt.Fprintf(&d.under, `<g class="box"><rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>`, b.class, b.x, b.y, b.w, b.h)
	for n, line := range b.lines {
		class := map[bool]string{true: "title", false: "line"}[n == 0]
		if kind, has := map[string]string{"= ": "key", "- ": "line"}[line[:min(2, len(line))]]; has {
			class, line = kind, line[2:]
		}
		fmt.Fprintf(&d.under, `<text class="%s" x="%d" y="%d">%s</text>`, class, b.x+10, b.y+20+18*n, html.EscapeString(line))
	}
	d.under.WriteString("</g>\n")
}

// side returns the middle of a side.
func (b box) side(name string) (x, y int) {
	half := map[string][2]int{"left": {0, 1}, "right": {2, 1}, "top": {1, 0}, "bottom": {1, 2}}[name]
	return b.x + b.w*half[0]/2, b.y + b.h*half[1]/2
}

// svg returns the picture.
func (d *drawing) svg() string {
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="%s">
<style>%s</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
<rect class="page" width="100%%" height="100%%" rx="6"/>
%s%s%s</svg>
`, d.width, d.height, html.EscapeString(d.label), style, d.lives.String(), d.under.String(), d.over.String())
}

// draw returns the picture of a description.
func draw(name string) (string, error) {
	text, err := descriptions.ReadFile(name + ".txt")
	if err != nil {
		return "", err
	}
	d, y := &drawing{boxes: map[string]box{}}, 0
	var actors []box
	for line := range strings.Lines(string(text)) {
		head, text, _ := strings.Cut(strings.TrimSpace(line), ": ")
		words := strings.Fields(head)
		switch {
		case words[0] == "label":
			d.label = strings.TrimSpace(strings.TrimPrefix(line, "label "))
		case words[0] == "part" || words[0] == "ours":
			b := newBox(8+column*len(actors), 8, column-12, words[0], text)
			actors, d.boxes[words[1]], y = append(actors, b), b, max(y, b.y+b.h)
			d.box(b)
		case words[0] == "box":
			err = d.placed(words, text)
		case words[0] == "bar":
			y, err = d.bar(words, text, y)
		case actors != nil:
			y, err = d.step(words, text, y)
		default:
			err = d.arrow(words, text)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %q: %w", name, line, err)
		}
	}
	for _, b := range actors {
		x, top := b.side("bottom")
		fmt.Fprintf(&d.lives, `<path class="life" d="M%d %dV%d"/>`+"\n", x, top, y+12)
	}
	d.grow(0, y+8)
	return d.svg(), nil
}

// placed draws a box with a given place.
func (d *drawing) placed(words []string, text string) error {
	var x, y, w, h int
	if _, err := fmt.Sscan(strings.Join(words[2:], " "), &x, &y, &w, &h); err != nil {
		return err
	}
	b := newBox(x, y, w, words[len(words)-1], text)
	b.h = max(b.h, h)
	d.boxes[words[1]] = b
	d.box(b)
	return nil
}

// bar draws a bar with its title on the left and its text on the right, and returns its lower end.
func (d *drawing) bar(words []string, text string, y int) (int, error) {
	n, err := strconv.Atoi(words[2])
	title, text, _ := strings.Cut(text, " | ")
	fmt.Fprintf(&d.under, `<text x="16" y="%d">%s</text><rect class="%s" x="320" y="%d" width="%d" height="18"/><text class="line" x="%d" y="%d">%s</text>`+"\n",
		y+25, html.EscapeString(title), words[1], y+12, n, n+330, y+25, html.EscapeString(text))
	d.grow(830, y+30)
	return y + 30, err
}

// column is the distance of the actors of a sequence.
const column = 132

// step draws one step of a sequence below y, and returns its lower end.
func (d *drawing) step(words []string, text string, y int) (int, error) {
	from, known := d.boxes[words[0]]
	if len(words) == 1 && known {
		note := newBox(0, y+10, 0, "group", text)
		for n, line := range note.lines {
			note.w = max(note.w, 24+len(line)*13/2)
			note.lines[n] = "- " + line
		}
		note.x = max(8, from.x+(from.w-note.w)/2)
		d.box(note)
		return note.y + note.h, nil
	}
	to, too := d.boxes[words[len(words)-1]]
	if !known || !too {
		return y, fmt.Errorf("no such actor")
	}
	a, b := from.x+from.w/2, to.x+to.w/2
	y += 34
	d.path("head", "M%d %dH%d", a, y, b)
	d.text((a+b)/2, y-7, text)
	return y, nil
}

// arrow draws an arrow between two boxes: straight, or with one or two corners.
func (d *drawing) arrow(words []string, text string) error {
	ends := [4]int{}
	for n, end := range []string{words[0], words[len(words)-1]} {
		name, side, _ := strings.Cut(end, ".")
		b, known := d.boxes[name]
		if !known {
			return fmt.Errorf("no box %s", name)
		}
		ends[2*n], ends[2*n+1] = b.side(side)
	}
	class := map[string]string{"->": "head", "--": ""}[words[1]]
	x, y := (ends[0]+ends[2])/2, (ends[1]+ends[3])/2
	across := func(end string) bool { return strings.HasSuffix(end, ".left") || strings.HasSuffix(end, ".right") }
	switch {
	case across(words[0]) && across(words[2]):
		d.path(class, "M%d %dH%dV%dH%d", ends[0], ends[1], x, ends[3], ends[2])
	case across(words[0]):
		d.path(class, "M%d %dH%dV%d", ends[0], ends[1], ends[2], ends[3])
	default:
		d.path(class, "M%d %dV%dH%dV%d", ends[0], ends[1], y, ends[2], ends[3])
	}
	d.text(x, y-6, text)
	return nil
}

func main() {
	for _, name := range names {
		text, err := draw(name)
		if err == nil {
			err = os.WriteFile("docs/"+name+".svg", []byte(text), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "picture:", err)
			os.Exit(1)
		}
	}
}
