package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

type Host struct {
	hostdev.Host
	Uplinks []string          // interfaces of default routes; nil = unknown
	Routers []string          // those of Uplinks whose default routes all come from router advertisements
	Uses    map[string]string // other uses of interfaces by the host: see [listing.Uses]; nil = unknown

	Conditions []settings.Condition // of hardware interfaces; nil = unknown
	Blind      error                // why they are unknown
}

// Live reads this machine: see [hostdev.Live] and [settings.Conditions].
func Live(sys *sysfs.FS, memory *settings.Memory) (Host, error) {
	host, err := hostdev.Live(sys)
	if err != nil {
		return Host{}, err
	}
	uplinks, routers, uses, err := listing.Uses(host.Links)
	conditions, blind := memory.Conditions()
	return Host{Host: host, Uplinks: append([]string{}, uplinks...), Routers: routers, Uses: uses, Conditions: conditions, Blind: blind}, err
}

func Captured(file *capturefile.Host) (Host, error) {
	links, err := linkhost.New(file)
	if err != nil {
		return Host{}, err
	}
	return Host{Host: hostdev.Host{Sys: sysfs.New(file.Sys()), Links: links.Links, Eswitches: links}, Uplinks: links.Uplinks, Routers: links.Advertised, Uses: links.Uses}, nil
}

// Read returns the network devices of a host with their attributes, by name. It fails if sysfs cannot be read. If only
// facts of a device or its eswitch cannot be read, their attributes are missing and there is a warning.
func Read(h Host) (devices []Device, warnings []string, err error) {
	found, warnings, err := hostdev.Read(h.Host)
	if found == nil && err != nil {
		return nil, nil, err
	}
	r := &reader{host: h, links: make(map[string]listing.Interface, len(h.Links)), warnings: warnings, named: map[string]*Device{}}
	for _, d := range found {
		r.take(d)
	}
	for _, l := range h.Links {
		r.links[l.Name] = l
		kind := map[string]hostdev.Kind{"bond": hostdev.Bond, "bridge": hostdev.Bridge, kindOVS: hostdev.OVS}[l.Info.Kind]
		if kind != "" && l.Name != ovsSystem { // a software device that pods can share
			r.add(&Device{Name: spell("net", l.Name), Ref: hostdev.Ref{Kind: kind, IfName: l.Name}})
		}
	}
	advertised, owned := h.routes()
	if h.Blind != nil {
		r.warnings = append(r.warnings, fmt.Sprintf("cannot tell what earlier pods left on interfaces: %v", h.Blind))
	}
	carry, conditions := map[string]bool{}, map[string]settings.Condition{}
	ports := map[string][]*Device{} // by function, which is unbound with all of them
	for _, d := range r.devices {
		carry[d.On] = true
		ports[d.hardware()] = append(ports[d.hardware()], d)
	}
	for _, c := range h.Conditions {
		conditions[c.Name] = c
	}
	routers, needed, uses := r.downwards(advertised), r.downwards(owned), r.downwards(h.Uses)
	for _, d := range r.devices {
		if d.found != nil {
			d.Unread = cmp.Or(r.hardware(d), d.found.Unread)
		}
		if d.Unread != nil {
			r.warnings = append(r.warnings, fmt.Sprintf("%s is not offered, because it cannot be read: %v", d.Name, d.Unread))
		}
		d.Uplink, d.HostUse, d.Unusable = cmp.Or(needed[d.IfName], routers[d.IfName]), uses[d.IfName], unusable(d, conditions[d.IfName], carry[d.Name])
		d.Advertised = d.Uplink != "" && needed[d.IfName] == ""
		r.interfaceOf(d)
	}
	for _, d := range r.devices { // the host also needs the parents of an uplink, such as its PF
		for up := r.named[d.On]; d.Uplink != "" && up != nil; up = r.named[up.On] {
			up.Uplink = cmp.Or(up.Uplink, d.Uplink+"; "+d.Name+" is on "+up.Name)
		}
	}
	for _, d := range r.devices {
		for _, port := range ports[d.hardware()] {
			switch {
			case port == d:
			case port.Port != "":
				d.OtherPort = cmp.Or(d.OtherPort, port.UsedByHost())
			case port.Uplink != "":
				d.OtherPort = cmp.Or(d.OtherPort, port.Uplink)
			case d.PortOf == "":
				d.HostUse = cmp.Or(d.HostUse, port.HostUse)
			}
		}
	}
	for _, d := range r.devices {
		d.found = nil
		devices = append(devices, *d)
	}
	slices.SortFunc(devices, func(a, b Device) int { return cmp.Compare(a.Name, b.Name) })
	slices.Sort(r.warnings)
	return devices, slices.Compact(r.warnings), nil
}

// routes returns the uplinks that have a default route from a router alone, and the others, each with what it has.
func (h Host) routes() (advertised, owned map[string]string) {
	advertised, owned = map[string]string{}, map[string]string{}
	for _, name := range h.Uplinks {
		if owned[name] = "has a default route"; slices.Contains(h.Routers, name) {
			delete(owned, name)
			advertised[name] = "has a default route by router advertisement; net.ipv6.conf." + name + ".accept_ra_defrtr=0 refuses it, " +
				"and allowAdvertisedRoute in its rule offers it all the same"
		}
	}
	return advertised, owned
}

// unusable returns why the next pod could not use a device; "" = it could. Where its interface is does not count, because
// a process that keeps a network namespace changes.
func unusable(d *Device, c settings.Condition, carry bool) string {
	c.Of, c.Carry, c.Closed = d.found, carry, d.Closed
	for _, f := range settings.Usable(c) {
		switch {
		case f.Maybe:
		case f.Rule == settings.NoDriver: // a long remedy
			return f.Found + "; devinfoctl doctor has the remedy"
		case f.Rule == settings.NoInterface:
			return f.Found + "; if no pod has it, devinfoctl doctor on the node has the remedy"
		case f.Rule == settings.NoRDMA:
			return f.Found + ": " + f.Remedy
		default:
			return "the next pod could not use it alone: " + f.Found + ": " + f.Remedy
		}
	}
	return ""
}

type reader struct {
	host     Host
	links    map[string]listing.Interface
	devices  []*Device
	named    map[string]*Device // by published name
	warnings []string
}

func (r *reader) add(d *Device) {
	d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	d.set(AttrKind, string(d.Kind))
	r.devices, r.named[d.Name] = append(r.devices, d), d
}

// take adds the device if pods may have it. It adds each other interface of the device as a NIC.
func (r *reader) take(found *hostdev.Device) {
	ports, parent := found.Ports, ""
	if name := nameOf(found); name != "" {
		for up := found.Parent; up != nil && parent == ""; up = up.Parent {
			parent = nameOf(up)
		}
		d := &Device{Name: name, Ref: found.Ref, On: parent, found: found}
		r.add(d)
		if d.Kind == hostdev.VDPA {
			d.set(AttrVDPADriver, found.Driver)
		} else {
			d.Driver = found.Driver
			d.set(AttrDriver, d.Driver)
		}
		if found.IfName != "" {
			ports = ports[1:]
		}
	}
	for _, p := range ports {
		d := &Device{Name: r.portName(found.At, p), Ref: hostdev.Ref{Kind: hostdev.NIC, IfName: p.Name}, On: parent}
		switch fn := found.Function; {
		case fn != nil && hostdev.MayBeOfSF(*fn, &link.Interface{PortName: p.PortName}):
			d.On = nameOf(found) // no port: the SF has hardware of its own
		case found.At.Bus == "pci":
			d.PortOf = found.At.Name
		}
		r.add(d)
	}
}

// nameOf returns the name of a device that pods may have, or "". An SF of the driver ice is not named, because
// neither its interface nor its representor can be found.
func nameOf(d *hostdev.Device) string {
	switch {
	case d.PCI != "":
		return functionName(d.PCI)
	case d.Kind == hostdev.SF && d.Number != nil:
		return spell("aux", d.Aux)
	case d.Kind == hostdev.VDPA:
		return spell("vdpa", d.VDPA)
	}
	return ""
}

// portName returns the device name of an interface, from its device and port. If the driver does not number its
// ports, it returns a name from the interface.
func (r *reader) portName(at hostdev.Place, p sysfs.Port) string {
	place := at.Bus + "-" + at.Name
	if p.DevPort > 0 {
		place += fmt.Sprintf("-p%d", p.DevPort)
	} else if p.PortName != "" {
		place += "-" + p.PortName
	}
	name := spell("dev", strings.ReplaceAll(place, "/", "-"))
	if r.named[name] != nil {
		return spell("net", p.Name)
	}
	return name
}
