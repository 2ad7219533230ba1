// Package topology draws a node's network devices: PFs, their VFs and SFs, the
// vDPA and RDMA devices on them, representors, and the attachments that hold them.
// [Read] makes the model, the other functions make text of it: a tree, or Graphviz'
// DOT.
//
// It lists all devices of the node, which takes longer the more there are: it is for
// people. Package discovery finds the device of one attachment.
package topology

import (
	"cmp"
	"strconv"
	"strings"

	"devinfo-cni.io/pkg/link"
)

// The kinds of nodes.
const (
	PF       = "pf"       // a PCI function that can have VFs
	VF       = "vf"       // a PCI function whose PF is here
	Function = "function" // any other PCI function: in a VM, a VF too
	SF       = "sf"       // a sub-function
	Aux      = "aux"      // an auxiliary device that is not an SF, but carries something
	VDPA     = "vdpa"
	RDMA     = "rdma"   // an RDMA device in software
	Other    = "device" // on any other bus
	Master   = "master" // a bond or bridge that pods share
)

// Topology is the devices of a host.
type Topology struct {
	Devices []*Node `json:"devices"`
	// Elsewhere are attachments whose device is not in Devices: sockets, devices that are
	// gone, and attachments without a device.
	Elsewhere []Attachment `json:"elsewhere,omitempty"`
	Warnings  []string     `json:"warnings,omitempty"`
}

// Node is one device.
type Node struct {
	Kind        string   `json:"kind"`
	Name        string   `json:"name"`             // a PCI address, or what sysfs calls it
	Number      *int     `json:"number,omitempty"` // of a VF on its PF; an SF's sfnum
	Driver      string   `json:"driver,omitempty"` // "" = unbound, or not visible
	Switchdev   bool     `json:"switchdev,omitempty"`
	VFs         *VFs     `json:"vfs,omitempty"` // of a PF
	Interfaces  []string `json:"interfaces,omitempty"`
	RDMA        []string `json:"rdma,omitempty"`
	Representor string   `json:"representor,omitempty"`
	// Represents are the interfaces of a PF in switchdev mode that stand for functions of
	// another host: on a DPU, those of the host that it sits in.
	Represents  []string     `json:"represents,omitempty"`
	Path        string       `json:"path,omitempty"`  // of a vDPA device: /dev/vhost-vdpa-0, or virtio3
	Offer       *Offer       `json:"offer,omitempty"` // nil = no rule of cni-dra-driver's names it
	Attachments []Attachment `json:"attachments,omitempty"`
	Below       []*Node      `json:"below,omitempty"`
}

// Offer is what has become of a device that a rule of cni-dra-driver's names.
type Offer struct {
	At           At     `json:"-"`
	Name         string `json:"name"` // in the node's ResourceSlices
	As           string `json:"as"`   // "shared" or "exclusive"
	ResourceName string `json:"resourceName,omitempty"`
	Why          string `json:"why,omitempty"` // it is not offered; "" = it is
}

// fact is the offer in words.
func (o *Offer) fact() string {
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

// At is where a device is: on a bus, by the name there. An interface that is no device's
// has the bus "net".
type At struct{ Bus, Name string }

// VFs counts the VFs of a PF.
type VFs struct {
	Number int `json:"number"`
	Most   int `json:"most"`
}

// Health decides the colour of an attachment in a picture.
type Health string

// The colours' meanings.
const (
	Good    Health = "good"
	Pending Health = "pending" // it is being made or removed, or cannot be read
	Bad     Health = "bad"
)

// Attachment is one that has, shares or names a device.
type Attachment struct {
	Pod         string `json:"pod,omitempty"`   // namespace/name; "" = not known
	Claim       string `json:"claim,omitempty"` // namespace/name; "" = it is not by a claim
	Network     string `json:"network"`
	ContainerID string `json:"containerID"` // "" = there is none yet
	IfName      string `json:"ifName"`
	Type        string `json:"type,omitempty"`   // "pci", "vdpa", "auxiliary", "net", "vhost-user" or "memif"
	Device      string `json:"device,omitempty"` // PCI address, vDPA or auxiliary device, interface or socket path
	Lease       string `json:"lease,omitempty"`  // of the device: "exclusive" or "shared"; "" = it only names it
	State       string `json:"state,omitempty"`  // in words: "ok", "netns gone"; "" = not known
	Left        bool   `json:"left,omitempty"`   // nobody uses it any more
	Health      Health `json:"-"`
}

// String is the name, and a state that is not good.
func (a Attachment) String() string { return a.name() + a.condition() }

// condition is a state that is not good.
func (a Attachment) condition() string {
	if a.State == "" || a.Health == Good {
		return ""
	}
	return ": " + a.State
}

// relation is what a device is to the attachment.
func (a Attachment) relation() string {
	switch {
	case a.Left:
		return "left by "
	case a.Lease == "exclusive":
		return "held by "
	case a.Lease == "shared":
		return "shared by "
	}
	return "named by "
}

// name is of the pod or else the container, whose ID it shortens as container tools do,
// and of the claim.
func (a Attachment) name() string {
	if a.Claim == "" {
		return a.user()
	}
	return strings.TrimPrefix(a.user()+", claim "+a.Claim, ", ")
}

func (a Attachment) user() string {
	const short = 12
	id := a.ContainerID
	name := a.Network + "/" + id[:min(len(id), short)] + "/" + a.IfName
	switch {
	case a.Network == "": // none of ours
		name = a.Pod
	case a.Pod != "":
		name = a.Pod + " " + a.IfName + " (" + a.Network + ")"
	case id == "":
		name = a.Network + "/" + a.IfName
	}
	return name
}

// A group is what Elsewhere holds of one kind.
type group struct {
	title string
	list  []Attachment
}

// elsewhere are the groups that are not empty.
func (t *Topology) elsewhere() (groups []group) {
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
	for _, g := range all {
		if len(g.list) > 0 {
			groups = append(groups, g)
		}
	}
	return groups
}

// Interfaces asks for an interface; "" is our own network namespace.
type Interfaces interface {
	Interface(netns, name string) (link.Interface, error)
}

// Switches asks for the representors of a PF, named by its PCI address.
type Switches interface {
	Switchdev(pf string) (bool, error)
	Representor(pf string, flavour link.Flavour, number int) (string, bool, error)
}

// facts describe a node after its name.
func (n *Node) facts() []string {
	facts := []string{n.title()}
	add := func(format string, values ...string) {
		if values = deleteEmpty(values); len(values) > 0 {
			facts = append(facts, format+strings.Join(values, " "))
		}
	}
	switch n.Kind {
	case PF, VF, Function, VDPA: // that of others is unknown
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
	add("represents other hosts' functions by ", n.Represents...)
	add("", n.Path)
	add("", n.Offer.fact())
	return facts
}

// title is the kind in words.
func (n *Node) title() string {
	title := map[string]string{
		PF: "PF", VF: "VF", Function: "PCI function", SF: "SF", Aux: "auxiliary device",
		VDPA: "vDPA device", RDMA: "RDMA device", Other: "device", Master: "bond or bridge",
	}[n.Kind]
	if n.Number != nil {
		title += " " + strconv.Itoa(*n.Number)
	}
	return title
}

func deleteEmpty(values []string) (kept []string) {
	for _, v := range values {
		if v != "" {
			kept = append(kept, v)
		}
	}
	return kept
}
