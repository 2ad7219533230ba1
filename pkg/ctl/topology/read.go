package topology

import (
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Read reads all network devices of a host, and puts the offers and attachments on them. It
// fails if sysfs cannot be read; a switch that does not answer is a warning.
func Read(host *discovery.Finder, offers []state.Offered, attachments []node.Attachment) (*Topology, error) {
	r := &reader{Finder: host, byName: map[string]*Node{}, top: &Topology{Devices: []*Node{}}}
	for _, step := range []func() error{r.functions, r.auxiliaries, r.vdpas, r.netdevs, r.software, r.representors, r.strangers} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.drop()
	r.offer(offers)
	r.hold(attachments)
	return r.top, nil
}

// reader is one Read.
type reader struct {
	*discovery.Finder
	top      *Topology
	byName   map[string]*Node // "bus/name"
	onSwitch []port
}

// A port is a node that an eswitch may have a representor for.
type port struct {
	node    *Node
	uplink  pci.Address
	flavour link.Flavour
}

// put places a node below the one at parent, or at the top if there is none.
func (r *reader) put(parent, at string, n *Node) {
	r.byName[at] = n
	if up := r.byName[parent]; up != nil {
		up.Below = append(up.Below, n)
		return
	}
	r.top.Devices = append(r.top.Devices, n)
}

func (r *reader) functions() error {
	list, err := r.Sys.Functions()
	if err != nil {
		return err
	}
	// PFs come first: the address of a VF may be smaller, on a bus of its own.
	slices.SortStableFunc(list, func(a, b sysfs.Function) int { return rank(a) - rank(b) })
	for _, fn := range list {
		n := &Node{Kind: Function, Name: fn.Address.String(), Driver: fn.Driver}
		number, most, isPF, err := r.Sys.VFs(fn)
		if err != nil {
			return err
		}
		if isPF {
			n.Kind, n.VFs = PF, &VFs{number, most}
		}
		if n.RDMA, err = r.Sys.RDMA(fn); err != nil {
			return err
		}
		parent := ""
		if fn.PF != nil {
			parent = "pci/" + fn.PF.String()
			if err := r.vf(n, fn); err != nil {
				return err
			}
		}
		r.put(parent, "pci/"+n.Name, n)
	}
	return nil
}

func rank(fn sysfs.Function) int {
	if fn.PF != nil {
		return 1
	}
	return 0
}

func (r *reader) vf(n *Node, fn sysfs.Function) error {
	n.Kind = VF
	number, ok, err := r.Sys.VFIndex(*fn.PF, fn.Address)
	if err != nil || !ok {
		return err
	}
	n.Number = &number
	r.onSwitch = append(r.onSwitch, port{n, *fn.PF, link.VF})
	return nil
}

func (r *reader) auxiliaries() error {
	list, err := r.Sys.Auxiliaries()
	if err != nil {
		return err
	}
	for _, aux := range list {
		n := &Node{Kind: Aux, Name: aux.Name, Number: aux.SFNumber}
		if n.RDMA, err = r.Sys.RDMA(aux); err != nil {
			return err
		}
		if aux.IsSF() {
			n.Kind = SF
		}
		parent := ""
		if aux.PCI != nil {
			parent = "pci/" + aux.PCI.String()
			if n.Number != nil {
				r.onSwitch = append(r.onSwitch, port{n, *aux.PCI, link.SF})
			}
		}
		r.put(parent, "auxiliary/"+n.Name, n)
	}
	return nil
}

func (r *reader) vdpas() error {
	list, err := r.Sys.VDPAs()
	if err != nil {
		return err
	}
	for _, v := range list {
		n := &Node{Kind: VDPA, Name: v.Name}
		if v.Driver != "" {
			n.Driver = v.Driver + "_vdpa"
		}
		if v.Vhost != "" {
			n.Path = "/dev/" + v.Vhost
		}
		parent := ""
		if v.Aux != "" {
			parent = "auxiliary/" + v.Aux
		} else if v.PCI != nil {
			parent = "pci/" + v.PCI.String()
		}
		r.put(parent, "vdpa/"+v.Name, n)
		if len(v.Virtio) == 1 {
			n.Path = v.Virtio[0]
			r.byName["virtio/"+v.Virtio[0]] = n
		}
	}
	return nil
}

// netdevs puts the interfaces to their devices. One on virtio belongs to the vDPA
// device or the function below; one without a device is not in the picture.
func (r *reader) netdevs() error {
	list, err := r.Sys.Netdevs()
	if err != nil {
		return err
	}
	for _, d := range list {
		if d.Device == "" {
			continue
		}
		at := d.Bus + "/" + d.Device
		if d.Bus == "virtio" && r.byName[at] == nil {
			if at, err = r.overVirtio(d); err != nil {
				return err
			}
		}
		if r.byName[at] == nil {
			r.put("", at, &Node{Kind: Other, Name: d.Device})
		}
		r.byName[at].Interfaces = append(r.byName[at].Interfaces, d.Name)
	}
	return nil
}

// overVirtio says where an interface on a virtio device belongs: to the vDPA device
// that only ethtool names where several virtio devices are beside it, else to the
// function.
func (r *reader) overVirtio(d sysfs.Netdev) (at string, err error) {
	v, _, err := r.Sys.Virtio(d.Device)
	if err != nil {
		return "", err
	}
	if i, err := r.Interfaces.Interface("", d.Name); err == nil && r.byName["vdpa/"+i.BusInfo] != nil {
		return "vdpa/" + i.BusInfo, nil
	}
	if v.PCI != nil {
		return "pci/" + v.PCI.String(), nil
	}
	return d.Bus + "/" + d.Device, nil
}

// software adds the RDMA devices that exist in software alone.
func (r *reader) software() error {
	list, err := r.Sys.RDMADevices()
	if err != nil {
		return err
	}
	for _, d := range list {
		if d.Device == "" {
			r.put("", "rdma/"+d.Name, &Node{Kind: RDMA, Name: d.Name, Interfaces: deleteEmpty([]string{d.Netdev})})
		}
	}
	return nil
}

// representors asks each switch once whether it is one, and then for its ports.
func (r *reader) representors() error {
	on := map[pci.Address]bool{}
	for _, p := range r.onSwitch {
		uplink := p.uplink.String()
		switchdev, asked := on[p.uplink]
		if !asked {
			var err error
			if switchdev, err = r.Switches.Switchdev(uplink); err != nil {
				r.warn("%v", err)
			}
			on[p.uplink] = switchdev
		}
		pf := r.byName["pci/"+uplink]
		if !switchdev || pf == nil {
			continue
		}
		pf.Switchdev = true
		name, _, err := r.Switches.Representor(uplink, p.flavour, *p.node.Number)
		if err != nil {
			r.warn("%s: %v", p.node.Name, err)
		}
		p.node.Representor = name
		pf.Interfaces = slices.DeleteFunc(pf.Interfaces, func(i string) bool { return name != "" && i == name })
	}
	return nil
}

// strangers finds, among a PF's interfaces, those that stand for functions of another host:
// they are no local function's representor.
func (r *reader) strangers() error {
	for _, n := range r.top.Devices {
		if n.Kind != PF && !n.Switchdev || len(n.Interfaces) < 2 {
			continue
		}
		n.Interfaces = slices.DeleteFunc(n.Interfaces, func(name string) bool {
			i, err := r.Interfaces.Interface("", name)
			stranger := err == nil && (strings.Contains(i.PortName, "pf") || n.Switchdev && link.Represents(i.PortName))
			if stranger {
				n.Represents = append(n.Represents, name)
			}
			return stranger
		})
	}
	return nil
}

func (r *reader) warn(format string, args ...any) {
	r.top.Warnings = append(r.top.Warnings, fmt.Sprintf(format, args...))
}

// drop removes the auxiliary devices that carry nothing.
func (r *reader) drop() {
	idle := func(n *Node) bool {
		return n.Kind == Aux && len(n.RDMA)+len(n.Interfaces)+len(n.Below) == 0
	}
	r.top.Devices = slices.DeleteFunc(r.top.Devices, idle)
	for _, n := range r.byName {
		n.Below = slices.DeleteFunc(n.Below, idle)
	}
}

// hold adds the attachments to the devices that they have, share or name.
func (r *reader) hold(attachments []node.Attachment) {
	for _, a := range attachments {
		place, own := a.Place()
		if own {
			a.Type, a.Device = place.Bus, place.Name
		}
		if a.Network == "" { // somebody else attaches it
			a.State = ""
		}
		if a.Network == "" && !own && a.Lease == "" { // nothing is known of it
			continue
		}
		n := r.byName[a.Type+"/"+a.Device]
		if n == nil || !slices.Contains([]string{"pci", "vdpa", "auxiliary", "net"}, a.Type) {
			r.top.Elsewhere = append(r.top.Elsewhere, a)
			continue
		}
		n.Attachments = append(n.Attachments, a)
	}
}
