package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/sysfs"
)

// Read returns the network devices of a host with their attributes, ordered by name. It
// fails if sysfs cannot be read; what a switch does not answer is a missing attribute, and a
// warning.
func Read(h Host) (devices []Device, warnings []string, err error) {
	found, warnings, err := hostdev.Read(h.Host)
	if err != nil {
		return nil, nil, err
	}
	r := &reader{
		host: h, links: h.byName(), uplinks: h.uplinks(), uses: h.downwards(h.Uses), warnings: warnings,
		named: map[string]*device{}, roots: map[string]deviceattribute.DeviceAttribute{},
	}
	for _, d := range found {
		r.take(d)
	}
	r.masters()
	for _, d := range r.devices {
		if err := r.describe(d); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.Name, err)
		}
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
	host    Host
	links   map[string]link.InterfaceRecord
	uplinks map[string]string
	uses    map[string]string
	roots   map[string]deviceattribute.DeviceAttribute // by the address of a function that is no VF

	devices  []*device
	named    map[string]*device // by the name that it is published under
	warnings []string
}

// device is one that is being read.
type device struct {
	Device
	found *hostdev.Device // nil = a further port of one, or a device of software
}

func (r *reader) add(d *device) {
	d.Attributes = map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{}
	d.set(AttrKind, string(d.Kind))
	r.devices, r.named[d.Name] = append(r.devices, d), d
}

// take adds a device that pods may have, and a NIC for each further interface of it, or of a
// device that pods may not have.
func (r *reader) take(found *hostdev.Device) {
	ports := found.Ports
	if name := nameOf(found); name != "" {
		d := &device{Device{Name: name, Ref: found.Ref}, found}
		for up := found.Parent; up != nil && d.On == ""; up = up.Parent {
			d.On = nameOf(up)
		}
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
		r.add(&device{Device: Device{Name: r.portName(found.At, p), Ref: hostdev.Ref{Kind: hostdev.NIC, IfName: p.Name}}})
	}
}

// nameOf names a device that pods may have; "" = they may not. Of an SF of ice neither the
// interface nor the representor can be told.
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

// portName names the device of an interface after its place: the device that it is of, and its
// port. Where drivers do not tell ports apart it is named after the interface.
func (r *reader) portName(at hostdev.Place, p sysfs.Port) string {
	place, port := at.Bus+"/"+at.Name, p.PortName
	if p.DevPort > 0 {
		port = fmt.Sprintf("p%d", p.DevPort)
	}
	if port != "" {
		place += "/" + port
	}
	name := spell("dev", strings.ReplaceAll(place, "/", "-"))
	if r.named[name] != nil {
		return spell("net", p.Name)
	}
	return name
}

// masters adds the devices of software that pods can share.
func (r *reader) masters() {
	for _, l := range r.host.Links {
		kind := map[string]hostdev.Kind{"bond": hostdev.Bond, "bridge": hostdev.Bridge, kindOVS: hostdev.OVS}[l.Info.Kind]
		if kind != "" && l.Name != ovsSystem {
			r.add(&device{Device: Device{Name: spell("net", l.Name), Ref: hostdev.Ref{Kind: kind, IfName: l.Name}}})
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
	d.NoCarrier = d.NoCarrier || d.Kind == hostdev.Bond && r.withoutCarrier(d.IfName)
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
