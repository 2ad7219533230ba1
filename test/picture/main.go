// Command picture draws docs/devinfo.svg: the way of device information from a node's device to a container.
package main

import (
	"fmt"
	"os"
	"strings"
)

// A box is one part of the picture. Its place and size are in pixels.
type box struct {
	x, y, width, height int
	class, title        string
	lines               []string
}

// An arrow leads along points, and has a label beside its first one.
type arrow struct {
	points string
	x, y   int
	label  string
}

var boxes = []box{
	{8, 8, 784, 372, "node", "node", nil},
	{500, 40, 276, 324, "pod", "pod", nil},
	{32, 64, 196, 92, "part", "device", []string{"VF 0000:01:10.0", "or vDPA, vhost-user, memif"}},
	{272, 64, 196, 92, "ours", "CNI plugin devinfo", []string{"chained after sriov or macvlan", "finds the device of net1"}},
	{272, 208, 196, 64, "part", "device-info file", []string{"NPWG specification 1.1.0"}},
	{32, 208, 196, 64, "part", "Multus", []string{"network-status annotation"}},
	{272, 308, 196, 56, "ours", "devinfo-agent", []string{"acts when a container starts"}},
	{520, 72, 236, 76, "part", "interface net1", []string{"moved in by sriov"}},
	{520, 208, 236, 148, "part", "container", []string{
		"DEVINFO_NET1_PCI_ADDRESS=", "  0000:01:10.0", "…/devinfo/net1.json", "/dev/vfio/17, if the node allows it",
	}},
}

var arrows = []arrow{
	{"228,110 266,110", 0, 0, ""},
	{"370,156 370,202", 378, 184, "writes"},
	{"272,240 234,240", 0, 0, ""},
	{"370,272 370,302", 378, 292, "reads"},
	{"468,336 514,336", 0, 0, ""},
	{"520,110 474,110", 0, 0, ""},
}

// style follows the reader's colour scheme.
const style = `text{font:13px sans-serif;fill:#1f2328}.title{font-weight:bold}.line,.label{font-size:12px;fill:#59636e}
.node{fill:#f6f8fa;stroke:#818b98}.pod{fill:#fff;stroke:#818b98}.part{fill:#fff;stroke:#818b98}.ours{fill:#ddf4ff;stroke:#0969da}
polyline{fill:none;stroke:#59636e;stroke-width:1.5;marker-end:url(#head)}#head path{fill:#59636e}
@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.line,.label{fill:#9198a1}
.node{fill:#151b23}.pod,.part{fill:#0d1117}.ours{fill:#121d2f;stroke:#4493f8}polyline{stroke:#9198a1}#head path{fill:#9198a1}}`

func draw() string {
	var b strings.Builder
	b.WriteString(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 388" role="img" aria-label="The plugin devinfo finds the device of an interface and writes the device-info file, which Multus and devinfo-agent read. The agent gives it to the container.">` + "\n")
	fmt.Fprintf(&b, "<style>%s</style>\n", style)
	b.WriteString(`<defs><marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>` + "\n")
	for _, x := range boxes {
		fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="6"/>`+"\n", x.class, x.x, x.y, x.width, x.height)
		fmt.Fprintf(&b, `<text class="title" x="%d" y="%d">%s</text>`+"\n", x.x+12, x.y+22, x.title)
		for n, line := range x.lines {
			fmt.Fprintf(&b, `<text class="line" xml:space="preserve" x="%d" y="%d">%s</text>`+"\n", x.x+12, x.y+44+20*n, line)
		}
	}
	for _, a := range arrows {
		fmt.Fprintf(&b, `<polyline points="%s"/>`+"\n", a.points)
		if a.label != "" {
			fmt.Fprintf(&b, `<text class="label" x="%d" y="%d">%s</text>`+"\n", a.x, a.y, a.label)
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: picture FILE")
		os.Exit(2)
	}
	if err := os.WriteFile(os.Args[1], []byte(draw()), 0o644); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}
