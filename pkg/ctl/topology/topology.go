// Package topology draws a node's network devices: PFs, their VFs and SFs, the
// vDPA and RDMA devices on them, representors, and the attachments that hold them.
// [Read] makes the model, [Topology.Tree] makes text of it.
//
// It lists all devices of the node, which takes longer the more there are: it is for
// people. Package discovery finds the device of one attachment.
package topology

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/journal"
)

// Topology is the devices of a host.
type Topology struct {
	Devices []*Node `json:"devices"`
	// Elsewhere are attachments whose device is not in Devices: sockets, devices that are
	// gone, and attachments without a device.
	Elsewhere []node.Attachment `json:"elsewhere,omitempty"`
	Warnings  []string          `json:"warnings,omitempty"`
}

type Node struct {
	Kind        hostdev.Kind `json:"kind"`
	Name        string       `json:"name"`             // a PCI address, or what sysfs calls it
	Number      *int         `json:"number,omitempty"` // of a VF on its PF; an SF's sfnum
	Driver      string       `json:"driver,omitempty"` // "" = unbound, or not visible
	Switchdev   bool         `json:"switchdev,omitempty"`
	VFs         *VFs         `json:"vfs,omitempty"` // of a PF
	Interfaces  []string     `json:"interfaces,omitempty"`
	RDMA        []string     `json:"rdma,omitempty"`
	Representor string       `json:"representor,omitempty"`
	// Represents are the interfaces of a PF in switchdev mode that stand for functions of
	// another host: on a DPU, those of the host that it sits in.
	Represents  []string          `json:"represents,omitempty"`
	Path        string            `json:"path,omitempty"`  // of a vDPA device: /dev/vhost-vdpa-0, or virtio3
	Offer       *state.Offered    `json:"offer,omitempty"` // nil = no rule of cni-dra-driver's names it
	Attachments []node.Attachment `json:"attachments,omitempty"`
	Below       []*Node           `json:"below,omitempty"`

	isFunction bool // of PCI
}

func offerFact(o *state.Offered) string {
	switch {
	case o == nil:
		return ""
	case o.Why != "":
		return "not offered: " + o.Why
	case o.ResourceName != "":
		return o.As + " " + o.Name + ", " + o.ResourceName
	}
	return o.As + " " + o.Name
}

type VFs struct {
	Number int `json:"number"`
	Most   int `json:"most"`
}

// relation is what a device is to the attachment.
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

// name is of the pod or else the container, and of the claim.
func name(a node.Attachment) string {
	user := a.Short()
	switch {
	case a.Network == "": // not made by devinfo
		user = a.Pod
	case a.Pod != "":
		user = a.Pod + " " + a.IfName + " (" + a.Network + ")"
	case a.ContainerID == "":
		user = a.Network + "/" + a.IfName
	}
	if a.Claim == "" {
		return user
	}
	return strings.TrimPrefix(user+", claim "+a.Claim, ", ")
}

// A group is what Elsewhere holds of one kind.
type group struct {
	title string
	list  []node.Attachment
}

// elsewhere are the groups that are not empty.
func (t *Topology) elsewhere() []group {
	all := []group{{title: "sockets"}, {title: "devices that are gone"}, {title: "attachments without a device"}}
	for _, a := range t.Elsewhere {
		n := 1
		switch {
		case a.Device == "":
			n = 2
		case a.Type == "vhost-user" || a.Type == "memif":
			n = 0
		}
		all[n].list = append(all[n].list, a)
	}
	return slices.DeleteFunc(all, func(g group) bool { return len(g.list) == 0 })
}

// facts describe a node after its name.
func (n *Node) facts() []string {
	facts := []string{n.title()}
	add := func(format string, values ...string) {
		if values = deleteEmpty(values); len(values) > 0 {
			facts = append(facts, format+strings.Join(values, " "))
		}
	}
	if n.isFunction || n.Kind == hostdev.VDPA { // that of others is unknown
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
		hostdev.PF: "PF", hostdev.VF: "VF", hostdev.NIC: "device", hostdev.SF: "SF", hostdev.Part: "auxiliary device", hostdev.VDPA: "vDPA device",
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

// offer puts the offers to their devices, and adds the bonds and bridges among them. One of
// a device that is gone is left out.
func (r *reader) offer(offers []state.Offered) {
	for _, o := range offers {
		at := o.Place()
		n := r.at[at]
		if n == nil && at.Bus == "net" {
			if n = r.withInterface(at.Name); n == nil {
				n = &Node{Kind: o.Kind, Name: at.Name}
				r.top.Devices = append(r.top.Devices, n)
			}
			r.at[at] = n
		}
		if n != nil {
			n.Offer = &o
		}
	}
}

func (r *reader) withInterface(name string) *Node {
	for _, n := range r.at {
		if slices.Contains(n.Interfaces, name) {
			return n
		}
	}
	return nil
}
