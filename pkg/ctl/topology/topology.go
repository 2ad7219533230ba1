// Package topology shows a node's network devices as a tree: PFs, their VFs and SFs, the vDPA and RDMA devices
// on them, representors, and the attachments that hold them. [Read] builds the model, and [Topology.Tree]
// prints it.
//
// It lists all devices of the node, so it is slow on large nodes. Package discovery finds the device of one
// attachment.
package topology

import (
	"cmp"
	"slices"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/hostdev"
)

type Topology struct {
	Devices []*Node `json:"devices"`
	// Elsewhere lists attachments whose device is not in Devices: sockets, devices that no longer exist, and
	// attachments without a device.
	Elsewhere []node.Attachment `json:"elsewhere,omitempty"`
	Warnings  []string          `json:"warnings,omitempty"`
}

type Node struct {
	Kind        hostdev.Kind `json:"kind"`
	Name        string       `json:"name"`             // PCI address or name in sysfs
	Number      *int         `json:"number,omitempty"` // number of a VF on its PF, or sfnum of an SF
	Driver      string       `json:"driver,omitempty"` // "" = unbound, or not visible
	Switchdev   bool         `json:"switchdev,omitempty"`
	VFs         *VFs         `json:"vfs,omitempty"` // VFs of a PF
	Interfaces  []string     `json:"interfaces,omitempty"`
	RDMA        []string     `json:"rdma,omitempty"`
	Representor string       `json:"representor,omitempty"`
	// Represents are the interfaces of a DPU's PF in switchdev mode that represent functions of the host into which the DPU is
	// plugged. They cannot stand below those functions, which the DPU does not see.
	Represents  []string          `json:"represents,omitempty"`
	Path        string            `json:"path,omitempty"`  // of a vDPA device: /dev/vhost-vdpa-0, or virtio3
	Offer       *state.Offered    `json:"offer,omitempty"` // nil = no rule of cni-dra-driver names it
	Attachments []node.Attachment `json:"attachments,omitempty"`
	Below       []*Node           `json:"below,omitempty"`

	isFunction bool     // the device is a PCI function
	altNames   []string // of its interfaces and its representor
}

type VFs struct {
	Number int `json:"number"`
	Most   int `json:"most"`
}

// Read reads all network devices of a host and assigns offers and attachments to them. It fails if sysfs
// cannot be read. An eswitch that cannot be read is a warning.
func Read(host hostdev.Host, offers []state.Offered, attachments []node.Attachment) (*Topology, error) {
	devices, warnings, err := hostdev.Read(host)
	rdma, rdmaErr := host.Sys.RDMADevices()
	if err = cmp.Or(err, rdmaErr); err != nil {
		return nil, err
	}
	r := &reader{at: map[hostdev.Place]*Node{}, top: &Topology{Devices: []*Node{}, Warnings: warnings}}
	for _, d := range devices {
		r.put(d)
	}
	for _, n := range r.at {
		for _, l := range host.Links {
			if slices.Contains(n.Interfaces, l.Name) || l.Name == n.Representor {
				n.altNames = append(n.altNames, l.AltNames...)
			}
		}
	}
	for _, d := range rdma {
		if d.Device == "" { // a software RDMA device
			r.top.Devices = append(r.top.Devices, &Node{Kind: hostdev.RDMA, Name: d.Name, Interfaces: deleteEmpty([]string{d.Netdev})})
		}
	}
	r.offer(offers)
	r.hold(attachments)
	idle := func(n *Node) bool { // an auxiliary device without an interface, RDMA device, representor, holder or device below it
		return n.Kind == hostdev.Auxiliary && len(n.RDMA)+len(n.Interfaces)+len(n.Represents)+len(n.Attachments)+len(n.Below) == 0
	}
	r.top.Devices = slices.DeleteFunc(r.top.Devices, idle)
	for _, n := range r.at {
		n.Below = slices.DeleteFunc(n.Below, idle)
	}
	return r.top, nil
}

// Only keeps devices with a wanted name, their parents and their children. It returns false if none is left.
func (t *Topology) Only(wanted func(names ...string) bool) bool {
	t.Devices = only(t.Devices, wanted)
	t.Elsewhere = slices.DeleteFunc(t.Elsewhere, func(a node.Attachment) bool { return !wanted(a.Device) })
	return len(t.Devices)+len(t.Elsewhere) > 0
}

func only(list []*Node, wanted func(names ...string) bool) []*Node {
	kept := []*Node{}
	for _, n := range list {
		if !wanted(slices.Concat(n.Interfaces, n.altNames, n.RDMA, n.Represents, []string{n.Name, n.Representor, n.Path})...) {
			if n.Below = only(n.Below, wanted); len(n.Below) == 0 {
				continue
			}
		}
		kept = append(kept, n)
	}
	return kept
}

type reader struct {
	top *Topology
	at  map[hostdev.Place]*Node
}

func (r *reader) put(d *hostdev.Device) {
	n := &Node{
		Kind: d.Kind, Name: d.At.Name, Number: d.Number, Driver: d.Driver, Switchdev: d.Eswitch == "switchdev", RDMA: d.RDMA.Devices,
		Representor: d.Representor, Represents: d.Represents, Path: d.Path, isFunction: d.PCI != "",
	}
	for _, p := range d.Ports {
		n.Interfaces = append(n.Interfaces, p.Name)
	}
	if d.Kind == hostdev.PF {
		n.VFs = &VFs{d.VFs, d.MaxVFs}
	}
	if d.Kind == hostdev.VDPA && d.Driver != "" {
		n.Driver += "_vdpa"
	}
	r.at[d.At] = n
	if d.Parent == nil {
		r.top.Devices = append(r.top.Devices, n)
		return
	}
	up := r.at[d.Parent.At]
	up.Below = append(up.Below, n)
}

func (r *reader) hold(attachments []node.Attachment) {
	for _, a := range attachments {
		a.DeviceInfo = nil // the tree has the devices themselves
		place, own := a.Place()
		if own {
			a.Type, a.Device = place.Bus, place.Name
		}
		if a.Network == "" { // attached by another program
			a.State = ""
		}
		if a.Network == "" && !own && a.Lease == "" { // nothing is known about it
			continue
		}
		if n := r.at[hostdev.Place{Bus: a.Type, Name: a.Device}]; n != nil {
			n.Attachments = append(n.Attachments, a)
		} else {
			r.top.Elsewhere = append(r.top.Elsewhere, a)
		}
	}
}

// offer assigns the offers to their devices, and adds offered bonds and bridges. It skips devices that no
// longer exist.
func (r *reader) offer(offers []state.Offered) {
	for _, o := range offers {
		at := o.Place()
		n := r.at[at]
		if n == nil && at.Bus == "net" {
			for _, other := range r.at {
				if slices.Contains(other.Interfaces, at.Name) {
					n = other
				}
			}
			if n == nil {
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
