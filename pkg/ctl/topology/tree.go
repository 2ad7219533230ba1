package topology

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/hostdev"
)

// Tree returns the topology as indented UTF-8 text that is safe for a terminal.
func (t *Topology) Tree() string {
	var d drawing
	for _, n := range t.Devices {
		d.tree(n, "", "")
	}
	if len(t.Devices) == 0 {
		d.line("no network device", "")
	}
	var groups [3][]node.Attachment
	for _, a := range t.Elsewhere {
		n := 1
		switch {
		case a.Device == "":
			n = 2
		case a.Type == "vhost-user" || a.Type == "memif":
			n = 0
		}
		groups[n] = append(groups[n], a)
	}
	for n, title := range []string{"sockets", "devices that are gone", "attachments without a device"} {
		if len(groups[n]) > 0 {
			d.line(title, "")
		}
		for i, a := range groups[n] {
			d.line(strings.TrimRight(branch(i, len(groups[n]))+name(a)+"  "+a.Type+" "+a.Device, " "), a.State)
		}
	}
	return d.text.String()
}

type drawing struct{ text strings.Builder }

func (d *drawing) line(text string, s check.State) {
	d.text.WriteString(clierr.Printable(text))
	if s != check.OK && s != "" { // "" = attached by another program
		d.text.WriteString(": " + string(s))
	}
	d.text.WriteByte('\n')
}

// tree prints a device after prefix text. indent is the prefix of its further lines.
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

func relation(a node.Attachment) string {
	switch {
	case a.Left():
		return "left by "
	case a.Lease == journal.Exclusive:
		return "held by "
	case a.Lease == journal.Shared:
		return "shared by "
	}
	return "named by "
}

// name returns the pod, else the container, and the claim.
func name(a node.Attachment) string {
	user := a.Short()
	switch {
	case a.Network == "": // the attachment was not made by devinfo
		user = a.PodName()
	case a.Pod != "":
		user = a.PodName() + " " + a.Interface + " (" + a.Network + ")"
	case a.ContainerID == "":
		user = a.Network + "/" + a.Interface
	}
	if a.Claim == "" {
		return user
	}
	return strings.TrimPrefix(user+", claim "+a.ClaimName(), ", ")
}

// facts returns the description that follows a device's name.
func (n *Node) facts() []string {
	facts := []string{n.title()}
	add := func(format string, values ...string) {
		if values = deleteEmpty(values); len(values) > 0 {
			facts = append(facts, format+strings.Join(values, " "))
		}
	}
	if n.isFunction || n.Kind == hostdev.VDPA { // the driver of other devices is unknown
		add("driver ", cmp.Or(n.Driver, "none"))
	}
	if n.Switchdev {
		add("", "switchdev")
	}
	if n.VFs != nil {
		add("", strconv.Itoa(n.VFs.Number)+" of "+strconv.Itoa(n.VFs.Most)+" VFs")
	}
	add("interface ", n.Interfaces...)
	add("RDMA ", n.RDMA...)
	add("representor ", n.Representor)
	represents := "represents functions by " // which are not found
	if n.isFunction {
		represents = "represents other hosts' functions by "
	}
	add(represents, n.Represents...)
	add("", n.Path)
	add("", offerFact(n.Offer))
	return facts
}

func (n *Node) title() string {
	title := map[hostdev.Kind]string{
		hostdev.PF: "PF", hostdev.VF: "VF", hostdev.NIC: "device", hostdev.SF: "SF", hostdev.Auxiliary: "auxiliary device", hostdev.VDPA: "vDPA device",
		hostdev.RDMA: "RDMA device", hostdev.Bond: "bond", hostdev.Bridge: "bridge", hostdev.OVS: "Open vSwitch bridge or port",
	}[n.Kind]
	if n.Kind == hostdev.NIC && n.isFunction {
		title = "PCI function"
	}
	if n.Number != nil {
		title += " " + strconv.Itoa(*n.Number)
	}
	return title
}

func deleteEmpty(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
}

func offerFact(o *state.Offered) string {
	switch {
	case o == nil:
		return ""
	case o.Why != "":
		return "not offered: " + o.Why
	case o.ResourceName != "":
		return o.Sharing + " " + o.Name + ", " + o.ResourceName
	}
	return o.Sharing + " " + o.Name
}
