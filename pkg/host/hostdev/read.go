package hostdev

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/sysfs"
)

type Host struct {
	Sys       *sysfs.FS
	Links     []listing.Interface // interfaces of the host's network namespace
	Eswitches Eswitches
}

// Live returns the running machine as a Host. Call it in the host's network namespace. Read needs CAP_NET_ADMIN
// to read eswitch modes.
func Live(sys *sysfs.FS) (Host, error) {
	links, err := listing.Interfaces("")
	return Host{Sys: sys, Links: links, Eswitches: link.NewKernel(sys.Files())}, err
}

// Read returns the devices of a host with their interfaces, RDMA devices and representors, PFs first and each device
// after its parent. Without Links it finds no interfaces, and without Eswitches no representors. It adds a NIC for each
// device on another bus that has an interface. An eswitch that cannot be read is a warning. If sysfs cannot be read, Read
// returns an error: together with the devices if all are known, and those that lack facts have Unread, and else alone.
func Read(h Host) (devices []*Device, warnings []string, err error) {
	h.Eswitches = CacheEswitches(h.Eswitches)
	r := &reader{Host: h, at: map[Place]*Device{}, virtio: map[string]*Device{}}
	if err := cmp.Or(r.functions(), r.auxiliaries(), r.vdpas(), r.interfaces(), r.apart()); err != nil {
		return nil, nil, err
	}
	r.eswitches()
	for _, d := range r.devices {
		slices.SortFunc(d.Ports, byPort)
		if len(d.Ports) > 0 && d.Ports[0].DevPort == 0 {
			d.IfName = d.Ports[0].Name
		}
		if d.Unread != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", d.At.Name, d.Unread))
		}
	}
	return r.devices, r.warnings, err
}

type reader struct {
	Host
	devices  []*Device
	at       map[Place]*Device
	virtio   map[string]*Device // vDPA devices by the name of their only virtio device
	warnings []string
}

func (r *reader) add(d *Device) {
	r.devices, r.at[d.At] = append(r.devices, d), d
	rdma, err := r.Sys.RDMABelow(d.At.Bus, d.At.Name)
	d.RDMA, d.Unread = rdma, cmp.Or(d.Unread, err)
}

func (r *reader) function(a *pci.Address) *Device {
	if a == nil {
		return nil
	}
	return r.at[Place{"pci", a.String()}]
}

func (r *reader) functions() error {
	list, err := r.Sys.Functions()
	// PFs first. A VF may have a smaller address than its PF, on a bus of its own.
	rank := map[bool]int{true: 1}
	slices.SortStableFunc(list, func(a, b sysfs.Function) int { return rank[a.PF != nil] - rank[b.PF != nil] })
	for _, fn := range list {
		d := &Device{Ref: Ref{Kind: NIC, PCI: fn.Address.String()}, Function: &fn, Parent: r.function(fn.PF), Driver: fn.Driver}
		d.At = d.Place()
		number, most, isPF, err := r.Sys.VFs(fn)
		if d.Unread = err; isPF || err != nil { // its eswitch is asked all the same
			d.Kind, d.VFs, d.MaxVFs = PF, number, most
		}
		if d.Parent != nil {
			d.Kind = VF
			index, ok, err := r.Sys.VFIndex(*fn.PF, fn.Address)
			if d.Unread = cmp.Or(d.Unread, err); ok {
				d.Number = &index
			}
		}
		r.add(d)
	}
	return err
}

func (r *reader) auxiliaries() error {
	list, err := r.Sys.Auxiliaries()
	for _, aux := range list {
		d := &Device{Ref: Ref{Kind: Auxiliary, Aux: aux.Name}, Parent: r.function(aux.PCI), Number: aux.SFNumber}
		d.At = d.Place()
		if aux.IsSF() {
			d.Kind = SF
		}
		r.on(d, aux.PCI)
	}
	return err
}

func (r *reader) vdpas() error {
	list, err := r.Sys.VDPAs()
	for _, v := range list {
		d := &Device{Ref: Ref{Kind: VDPA, VDPA: v.Name, Aux: v.SF}, Parent: r.function(v.PCI), Driver: v.Driver}
		d.At = d.Place()
		if v.Aux != "" {
			d.Parent = r.at[Place{"auxiliary", v.Aux}]
		}
		if v.Vhost != "" {
			d.Path = "/dev/" + v.Vhost
		}
		if len(v.Virtio) == 1 {
			d.Path = v.Virtio[0]
			r.virtio[v.Virtio[0]] = d
		}
		r.on(d, v.PCI)
	}
	return err
}

// on adds a device and sets its Function to the PCI function that carries it. That function need not be a network
// controller; it is not with pds_core.
func (r *reader) on(d *Device, function *pci.Address) {
	if function != nil {
		fn, ok, err := r.Sys.PCI(*function)
		if d.Unread = err; ok {
			d.Function = &fn
		}
	}
	r.add(d)
}

// interfaces assigns the host's interfaces to their devices by place. Names do not identify them, because an
// interface that returns from a pod keeps its name from there.
func (r *reader) interfaces() error {
	links := make(map[string]listing.Interface, len(r.Links))
	for _, l := range r.Links {
		links[l.Name] = l
	}
	list, err := r.Sys.Netdevs()
	for _, n := range list {
		l, known := links[n.Name]
		if !known || n.Device == "" || borrows(l) { // an unknown interface appeared after Links was read, and may be a representor
			continue
		}
		d, err := r.owner(n, l)
		switch {
		case err != nil:
			return err
		case d == nil:
		case link.Represents(l.PortName):
			d.Represents = append(d.Represents, n.Name)
		default:
			d.Ports = append(d.Ports, sysfs.Port{Name: n.Name, Index: l.Index, DevPort: n.DevPort, PortName: l.PortName})
		}
	}
	return err
}

// owner returns the device of an interface, or nil if it is unknown.
func (r *reader) owner(n sysfs.Netdev, l listing.Interface) (*Device, error) {
	at := Place{n.Bus, n.Device}
	if n.Bus == "virtio" {
		if d := r.virtio[n.Device]; d != nil {
			return d, nil
		}
		var err error
		if at, _, err = OverVirtio(r.Sys, n.Device, l.BusInfo); err != nil {
			return nil, err
		}
		switch d := r.at[at]; {
		case at.Bus == "pci" && (d == nil || d.Driver != VirtioNIC):
			r.warn("interface %s: cannot tell which vDPA device on %s it belongs to", n.Name, at.Name)
			return nil, nil
		case at.Bus != "virtio":
			return d, nil
		}
	}
	if r.at[at] == nil {
		r.add(&Device{Ref: Ref{Kind: NIC}, At: at})
	}
	return r.at[at], nil
}

// apart gives RDMA devices on other functions to the devices of their interfaces.
func (r *reader) apart() error {
	list, err := r.Sys.RDMAApart()
	for _, a := range list {
		of := r.boundTo(a)
		if from := r.at[Place{"pci", a.Device}]; from != nil {
			from.BoundTo, from.Serves = a.Netdev, of
		}
		if of != nil && len(of.RDMA.Devices) == 0 {
			of.RDMA, of.RDMAOn = sysfs.RDMA{Devices: []string{a.Name}, Nodes: a.Nodes, GUID: a.GUID, Netdev: true}, a.Device
		}
	}
	return err
}

func (r *reader) boundTo(a sysfs.Apart) *Device {
	for _, d := range r.devices {
		for _, p := range d.Ports {
			n := slices.IndexFunc(r.Links, func(l listing.Interface) bool { return l.Name == p.Name })
			mac, _ := net.ParseMAC(r.Links[n].Address)
			if bound, _ := a.BoundTo(p.Name, mac); bound {
				return d
			}
		}
	}
	return nil
}

func (r *reader) eswitches() {
	if r.Eswitches == nil {
		return
	}
	for _, d := range r.devices {
		if d.Kind == PF {
			r.mode(d)
		}
	}
	for _, d := range r.devices {
		pf, flavour := d.Parent, link.VF
		if pf == nil || d.Number == nil {
			continue
		}
		if d.Kind == SF {
			flavour = link.SF
			r.mode(pf)
		}
		if pf.Eswitch != "switchdev" {
			continue
		}
		name, _, err := r.Eswitches.Representor(pf.PCI, flavour, *d.Number)
		if err != nil {
			r.warn("%s: %v", d.At.Name, err)
		}
		if name != "" {
			d.Representor = name
			pf.Represents = slices.DeleteFunc(pf.Represents, func(i string) bool { return i == name })
			pf.Ports = slices.DeleteFunc(pf.Ports, func(p sysfs.Port) bool { return p.Name == name })
		}
	}
}

func (r *reader) mode(d *Device) {
	switch on, err := r.Eswitches.Switchdev(d.PCI); {
	case err != nil:
		r.warn("%v", err)
	case on:
		d.Eswitch = "switchdev"
	default:
		d.Eswitch = "legacy"
	}
}

func (r *reader) warn(format string, args ...any) {
	if w := fmt.Sprintf(format, args...); !slices.Contains(r.warnings, w) {
		r.warnings = append(r.warnings, w)
	}
}
