package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Read returns the network devices of a host with their attributes, ordered by name. It
// fails if sysfs cannot be read; what a switch does not answer is a missing attribute, and a
// warning.
func Read(h Host) (devices []Device, warnings []string, err error) {
	r := &reader{
		host: h, eswitch: h.Eswitch.Once(), links: h.byName(), uplinks: h.uplinks(), uses: h.downwards(h.Uses),
		functions: map[pci.Address]sysfs.Function{}, at: map[string]*device{}, named: map[string]*device{}, virtio: map[string]string{},
		roots: map[pci.Address]deviceattribute.DeviceAttribute{},
	}
	for _, step := range []func() error{r.readFunctions, r.readSFs, r.readVDPAs, r.readInterfaces, r.describe} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	r.masters()
	for _, d := range r.devices {
		r.interfaceOf(d)
	}
	r.keepUplinks()
	for _, d := range r.devices {
		devices = append(devices, d.Device)
	}
	slices.SortFunc(devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(r.warnings)
	return devices, slices.Compact(r.warnings), nil
}

// reader is one Read.
type reader struct {
	host      Host
	eswitch   link.Eswitch
	links     map[string]link.InterfaceRecord
	uplinks   map[string]string
	uses      map[string]string
	functions map[pci.Address]sysfs.Function
	roots     map[pci.Address]deviceattribute.DeviceAttribute
	virtio    map[string]string // "virtio4" to the bus and name of the device that it is part of

	devices  []*device
	at       map[string]*device // by bus and name: "pci/0000:3b:00.2"
	named    map[string]*device // by the name that it is published under
	warnings []string
}

// device is one that is being read.
type device struct {
	Device
	on     *pci.Address // the function that it is, or is on; nil = none
	number *int         // an SF's; the index of a VF
}

func (r *reader) add(at string, d *device) {
	d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	d.set(AttrKind, string(d.Kind))
	r.devices, r.named[d.Name] = append(r.devices, d), d
	if at != "" {
		r.at[at] = d
	}
}

func (r *reader) readFunctions() error {
	list, err := r.host.Sys.Functions()
	if err != nil {
		return err
	}
	for _, fn := range list {
		r.functions[fn.Address] = fn
	}
	for _, fn := range list {
		d := &device{Device: Device{Name: functionName(fn.Address), Kind: NIC, PCI: &fn.Address, Driver: fn.Driver}, on: &fn.Address}
		_, _, isPF, err := r.host.Sys.VFs(fn)
		if err != nil {
			return err
		}
		if isPF {
			d.Kind = PF
		}
		if fn.PF != nil {
			if _, here := r.functions[*fn.PF]; here {
				d.Kind, d.On = VF, functionName(*fn.PF)
			}
		}
		r.add("pci/"+fn.Address.String(), d)
		d.set(AttrDriver, fn.Driver)
	}
	return nil
}

func (r *reader) readSFs() error {
	list, err := r.host.Sys.Auxiliaries()
	if err != nil {
		return err
	}
	for _, aux := range list {
		if aux.SFNumber == nil {
			continue // no SF, or one of ice: neither its interface nor its representor can be told
		}
		d := &device{Device: Device{Name: spell("aux", aux.Name), Kind: SF, Aux: aux.Name}, on: aux.PCI, number: aux.SFNumber}
		if aux.PCI != nil {
			d.On = functionName(*aux.PCI)
		}
		r.add("auxiliary/"+aux.Name, d)
	}
	return nil
}

func (r *reader) readVDPAs() error {
	list, err := r.host.Sys.VDPAs()
	if err != nil {
		return err
	}
	for _, v := range list {
		d := &device{Device: Device{Name: spell("vdpa", v.Name), Kind: VDPA, VDPA: v.Name, Aux: v.SF}, on: v.PCI}
		switch {
		case v.SF != "":
			d.On = spell("aux", v.SF)
		case v.PCI != nil:
			d.On = functionName(*v.PCI)
		}
		r.add("vdpa/"+v.Name, d)
		d.set(AttrVDPADriver, v.Driver)
		if len(v.Virtio) == 1 {
			r.virtio[v.Virtio[0]] = "vdpa/" + v.Name
		}
	}
	return nil
}

// readInterfaces puts the host's interfaces to their devices, by place: the kernel gives an
// interface back under the name that it had in a pod. Representors are no devices; a further
// port of a function is a NIC of its own.
func (r *reader) readInterfaces() error {
	list, err := r.host.Sys.Netdevs()
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b sysfs.Netdev) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range list {
		l, known := r.links[n.Name]
		if !known { // it came meanwhile, and might be a representor
			continue
		}
		if n.Device == "" || link.Represents(l.PortName) || l.Info.Kind != "" && l.Info.Kind != "ipoib" || link.IPoIBChild(l.Info.Kind, l.Link != "") {
			continue
		}
		at, err := r.owner(n)
		if err != nil {
			return err
		}
		if at == "" {
			continue
		}
		if d := r.at[at]; d != nil && d.IfName == "" && n.DevPort == 0 {
			d.IfName = n.Name
			continue
		}
		r.add("", &device{Device: Device{Name: r.portName(at, n, l.PortName), Kind: NIC, IfName: n.Name}})
	}
	return nil
}

// portName names the device of an interface after its place: the device that it is of, and its
// port. Where drivers do not tell ports apart it is named after the interface.
func (r *reader) portName(at string, n sysfs.Netdev, port string) string {
	if n.DevPort > 0 {
		port = fmt.Sprintf("p%d", n.DevPort)
	}
	if port != "" {
		at += "/" + port
	}
	name := spell("dev", strings.ReplaceAll(at, "/", "-"))
	if r.named[name] != nil {
		return spell("net", n.Name)
	}
	return name
}

// owner gives the bus and name of the device that an interface is of; "" is one that is
// not known. One on virtio is of the function that virtio-pci drives, or of a vDPA device:
// where several are beside it only ethtool names that.
func (r *reader) owner(n sysfs.Netdev) (at string, err error) {
	if n.Bus != "virtio" {
		return n.Bus + "/" + n.Device, nil
	}
	if at := r.virtio[n.Device]; at != "" {
		return at, nil
	}
	if at := "vdpa/" + r.links[n.Name].BusInfo; r.at[at] != nil {
		return at, nil
	}
	v, ok, err := r.host.Sys.Virtio(n.Device)
	switch {
	case err != nil || !ok || v.VDPA != "":
		return "", err
	case v.PCI == nil:
		return "virtio/" + n.Device, nil
	case r.functions[*v.PCI].Driver != "virtio-pci":
		return "", nil
	}
	return "pci/" + v.PCI.String(), nil
}

// masters adds the devices of software that pods can share.
func (r *reader) masters() {
	for _, l := range r.host.Links {
		kind := map[string]Kind{"bond": Bond, "bridge": Bridge, kindOVS: OVS}[l.Info.Kind]
		if kind != "" && l.Name != ovsSystem {
			r.add("", &device{Device: Device{Name: spell("net", l.Name), Kind: kind, IfName: l.Name}})
		}
	}
}

// interfaceOf fills in what is known of the interface of a device.
func (r *reader) interfaceOf(d *device) {
	d.Uplink, d.HostUse = r.uplinks[d.IfName], r.uses[d.IfName]
	if d.IfName == "" {
		return
	}
	l := r.links[d.IfName]
	d.Port = l.Master
	d.NoCarrier = d.NoCarrier || d.Kind == Bond && r.withoutCarrier(d.IfName)
	d.set(AttrIfName, d.IfName)
	if l.MTU > 0 {
		d.setInt(AttrMTU, l.MTU)
	}
	medium, err := r.host.Sys.Medium(d.IfName)
	if err != nil {
		r.warnings = append(r.warnings, err.Error())
		return
	}
	if medium.Type != nil {
		d.set(AttrLinkType, map[int]string{1: "ether", 32: "infiniband"}[*medium.Type])
	}
	if medium.Speed != nil && *medium.Speed > 0 {
		d.setInt(AttrSpeed, *medium.Speed)
	}
}

// withoutCarrier reports that an interface is up and has no carrier. One that is down has
// none either, but is not expected to.
func (r *reader) withoutCarrier(name string) bool {
	l := r.links[name]
	return slices.Contains(l.Flags, "UP") && (slices.Contains(l.Flags, "NO-CARRIER") || strings.EqualFold(l.OperState, "LOWERLAYERDOWN"))
}

// keepUplinks marks what an uplink is on, such as its PF, as needed by the host.
func (r *reader) keepUplinks() {
	for _, d := range r.devices {
		for up := r.named[d.On]; d.Uplink != "" && up != nil; up = r.named[up.On] {
			if up.Uplink == "" {
				up.Uplink = d.Uplink + "; that is on " + up.Name
			}
		}
	}
}
