package discovery

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
)

// fromInterface states the device of the interface in the pod's namespace, or of the first interface below it
// that has a device.
func (s *search) fromInterface() error {
	if s.target.Netns == "" {
		return nil
	}
	found, err := s.Interfaces.Interface(s.target.Netns, s.target.IfName)
	if errors.Is(err, link.ErrNoInterface) {
		return nil // normal for a device on vfio-pci and for a socket
	} else if err != nil {
		return err
	}
	s.found.InNetns, s.found.Interface = true, cmp.Or(found.Parent, found.Kind, found.BusInfo)
	last := &found
	for last.Lower != nil {
		last = last.Lower
	}
	s.found.Virtual, s.found.Below = virtual(&found, last)
	if IsSocket(s.typ()) {
		return nil
	}
	for i := &found; i != nil; i = i.Lower {
		if ok, err := s.fromLink(i); err != nil {
			return err
		} else if ok {
			return s.classify(i, i != &found)
		}
	}
	switch {
	case last.Bus == "vmbus": // drivers/net/hyperv/netvsc_drv.c
		s.several = last.Name + " has a device on Hyper-V's vmbus, and a VF that may come and go"
	case last != &found && isBond(last): // one that is itself in the pod is only virtual
		s.several = "it is on " + last.Name + ", which has several devices"
	}
	return nil
}

// virtual returns [Device.Virtual] and Below for an interface with the one at the bottom of its stack. If that is itself
// stacked, nothing shows what it is on.
func virtual(i, last *link.Interface) (is bool, below string) {
	switch {
	case last.Kind == "" || last.Kind == "ipoib" || last.Parent != "" || last.Stacked() || last.Child:
		return false, ""
	case last == i:
		return true, ""
	}
	return !isBond(last), fmt.Sprintf("the %s %s", last.Kind, last.Name)
}

func isBond(i *link.Interface) bool { return i.Kind == "bond" || i.Kind == "team" }

// classify decides whether the device of the last statement, from interface i, is the pod's own device or one that
// other interfaces share. Without FollowLower it drops the statement about a shared device.
func (s *search) classify(i *link.Interface, lower bool) error {
	last := len(s.statements) - 1
	if err := s.nameSF(i, &s.statements[last].ref); err != nil {
		return err
	}
	its := s.statements[last].ref
	s.link = i
	if !lower && !i.Borrows() {
		ports, err := s.ports(i, its)
		if err != nil {
			return err
		}
		if ports != hostdev.SeveralPorts {
			s.ownDevice, s.found.MaybeShared = true, ports == hostdev.PortsUnknown
			return nil
		}
		s.several = "it is one port of " + its.String() + ", which has several, and followLower is false"
	}
	s.sharedDevice = &its
	if !s.target.FollowLower {
		s.statements, s.virtio = s.statements[:last], ""
	}
	return nil
}

// nameSF replaces the PCI function of an interface by the SF that another source names on it, if the interface can be
// that SF's: neither netlink nor /sys names it.
func (s *search) nameSF(i *link.Interface, its *ref) error {
	n := slices.IndexFunc(s.statements, func(c statement) bool {
		return c.ref.aux != "" && c.ref.pci != nil && its.pci != nil && *c.ref.pci == *its.pci
	})
	if n < 0 || its.aux != "" {
		return nil
	}
	fn, ok, err := s.function(*its.pci)
	if ok && hostdev.MayBeOfSF(fn, i) {
		its.aux = s.statements[n].ref.aux
	}
	return err
}

// ports counts the ports of the interface's function, which share its device nodes and RDMA devices.
func (s *search) ports(i *link.Interface, its ref) (hostdev.PortCount, error) {
	if its.pci == nil || its.aux != "" || its.vdpa != "" || its.vdpaUnknown {
		return hostdev.AtMostOnePort, nil
	}
	fn, ok, err := s.function(*its.pci)
	if err != nil || !ok {
		return hostdev.AtMostOnePort, err
	}
	return hostdev.CountPorts(s.Sys, fn, i)
}

// fromLink states the parent device of an interface. It returns false if the interface has none.
func (s *search) fromLink(i *link.Interface) (ok bool, err error) {
	source, ethtool := "interface "+i.Name+" (netlink)", "interface "+i.Name+" (ethtool bus-info)"
	switch {
	case i.Parent == "":
		return s.state(ethtool, i.BusInfo, s.resolve, "")
	case i.Bus != "virtio":
		return s.state(source, i.Parent, s.resolve, "")
	}
	at, byEthtool, err := hostdev.OverVirtio(s.Sys, i.Parent, i.BusInfo)
	if err != nil {
		return false, err
	}
	if byEthtool {
		source = ethtool
	}
	s.virtio = i.Parent
	switch at.Bus {
	case "vdpa":
		return s.state(source, at.Name, s.resolveVDPA, "")
	case "pci":
		return s.state(source, at.Name, s.resolveVirtio, "")
	}
	return false, nil
}

// resolveVirtio looks up the function above a virtio device. Unless virtio_pci drives the function, the virtio
// device comes from virtio_vdpa.
func (s *search) resolveVirtio(name string) (r ref, there bool, err error) {
	r, there, err = s.resolve(name)
	if err != nil || !there {
		return r, there, err
	}
	fn, _, err := s.function(*r.pci)
	r.vdpaUnknown = fn.Driver != hostdev.VirtioNIC
	return r, there, err
}
