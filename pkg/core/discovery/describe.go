package discovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// describe fills in Device.Info for the device's type. It returns an error only if the kernel cannot be read
// about the device itself; optional facts that it cannot read become warnings.
func (s *search) describe() error {
	for _, c := range s.statements {
		if c.missing {
			s.found.Problem = &MissingError{c.source, c.ref.String()}
			return nil
		}
	}
	switch t := s.typ(); {
	case IsSocket(t):
		s.describeSocket(t)
		return nil
	case s.where == (ref{}):
		if s.target.SocketPath != "" {
			s.found.Problem = &UndescribableError{
				"the socket " + s.target.SocketPath + " (the result's socketPath)",
				`its type (vhost-user or memif) is unknown; declare "deviceInfo": {"type": …}`,
			}
		} else if s.several != "" && Identity(s.target.Declared) == "" && Identity(s.target.Existing) == "" {
			s.found.Problem = &UndescribableError{"interface " + s.target.IfName, s.several + "; name one device in deviceID or deviceInfo"}
		}
		return nil
	case t == "" || t == devinfo.TypeVDPA && s.where.vdpa == "":
		if err := s.lookForVDPA(); err != nil || s.found.Problem != nil {
			return err
		}
	}
	if s.typ() == devinfo.TypeVDPA {
		return s.describeVDPA()
	}
	return s.describePCI()
}

// lookForVDPA sets the device to the vDPA device on the function or SF. It does nothing if no vDPA device there has
// a driver, unless the type must be vdpa; describeVDPA then reports the missing driver. If there are several vDPA
// devices and the pod's interface is not on one of them, it reports the problem and sets none.
func (s *search) lookForVDPA() error {
	var list []sysfs.VDPA
	d, ok, err := s.device()
	if ok {
		list, err = s.Sys.VDPAOn(d)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.where, err)
	}
	bound := func(v sysfs.VDPA) bool { return v.Driver != "" }
	if s.typ() != devinfo.TypeVDPA && !slices.ContainsFunc(list, bound) {
		return nil
	}
	var names, below []string // below the pod's interface
	for _, v := range list {
		names = append(names, v.Name)
		if slices.Contains(v.Virtio, s.virtio) {
			below = append(below, v.Name)
		}
	}
	switch {
	case len(below) == 1:
		s.where.vdpa = below[0]
	case len(names) == 1:
		s.where.vdpa = names[0]
	case names != nil:
		s.undescribable(fmt.Sprintf("it carries %d vDPA devices (%s), and no source names one of them; "+
			"set deviceID to one of them, or name one as parent-device in deviceInfo or in the device-info file", len(list), strings.Join(names, ", ")))
	}
	return nil
}

func (s *search) describeSocket(t devinfo.Type) {
	if s.target.SocketPath == "" {
		return
	}
	info := &devinfo.Info{Type: t}
	if t == devinfo.TypeMemif {
		info.Memif = &devinfo.Memif{Path: s.target.SocketPath}
	} else {
		info.VhostUser = &devinfo.VhostUser{Path: s.target.SocketPath}
	}
	if err := info.ValidateDeclared().Err(); err != nil { // readers mangle blanks and some other characters
		s.found.Problem = &UndescribableError{"the socket of the result's socketPath", err.Error()}
		return
	}
	s.found.Info = info
	s.addFact("path", s.target.SocketPath, "the result's socketPath")
}

func (s *search) describePCI() error {
	if s.where.aux != "" && !s.target.SubfunctionParent {
		s.undescribable("the specification has no type for sub-functions, and with the parent's PCI address " +
			`a VM would get the whole parent; set "subfunctionParent": true to write it anyway`)
		return nil
	}
	if s.where.vdpaUnknown && s.typ() == "" {
		s.found.Problem = &UndescribableError{"interface " + s.target.IfName, "its virtio device " + s.virtio + " belongs to a vDPA device on " + s.where.String() +
			", but the kernel does not report which one; set deviceID to the vDPA device's name"}
		return nil
	}
	if s.where.pci == nil {
		s.undescribable("the type is pci, but it has no PCI address; correct the type in deviceInfo or in the device-info file")
		return nil
	}
	fn, ok, err := s.function(*s.where.pci)
	if err != nil || !ok {
		return err
	}
	d := &devinfo.PCI{Address: fn.Address.String()}
	s.found.Info, s.found.Driver = &devinfo.Info{Type: devinfo.TypePCI, PCI: d}, fn.Driver
	s.addFact("pci-address", d.Address, s.statements[0].source)
	d.PFAddress = s.pf(fn)
	d.RDMADevice = s.rdma(fn)
	d.Representor = s.representor(fn)
	return nil
}

func (s *search) pf(fn sysfs.Function) string {
	if fn.PF == nil {
		return ""
	}
	s.addFact("pf-pci-address", fn.PF.String(), "/sys/bus/pci/devices/"+fn.Address.String()+"/physfn")
	return fn.PF.String()
}

func (s *search) rdma(fn sysfs.Function) string {
	var names []string
	var from string
	d, ok, err := s.device()
	if ok {
		names, from, err = s.Sys.RDMA(d)
	}
	dir := "/sys/bus/pci/devices/" + s.where.pci.String() + "/" + from
	if s.where.aux != "" {
		dir = "/sys/bus/auxiliary/devices/" + s.where.aux + "/" + from
	} else if len(names) == 0 && err == nil {
		s.found.RDMA, err = s.apart(fn)
	}
	if err != nil {
		s.warn("%s: RDMA devices: %v", s.where, err)
	}
	if a := s.found.RDMA; a != nil {
		names, dir = []string{a.Name}, "/sys/class/infiniband/"+a.Name+"/ports/1/gid_attrs/ndevs/0"
	}
	list := strings.Join(names, ",")
	if list != "" {
		s.addFact("rdma-device", list, dir)
	}
	return list
}

// apart returns the RDMA device on another function that is bound to an interface of this one: the pod's, or one that
// /sys shows. The name of the pod's interface is not enough, because interfaces of other pods may have the same one.
func (s *search) apart(fn sysfs.Function) (*sysfs.Apart, error) {
	list, err := s.Sys.RDMAApart()
	if err != nil || len(list) == 0 {
		return nil, err
	}
	ports, err := s.Sys.Ports("pci", fn.Address.String(), sysfs.FewPorts)
	ports = slices.DeleteFunc(ports, func(p sysfs.Port) bool { return link.Represents(p.PortName) })
	if err != nil {
		return nil, err
	}
	for _, a := range list {
		if slices.ContainsFunc(ports, func(p sysfs.Port) bool { return p.Name == a.Netdev }) {
			i, err := s.Interfaces.Interface("", a.Netdev)
			if bound, _ := a.BoundTo(i.Name, i.MAC, i.PermMAC); bound || err != nil && !errors.Is(err, link.ErrNoInterface) {
				return &a, err
			}
		} else if i := s.link; i != nil {
			switch bound, proven := a.BoundTo(i.Name, i.MAC, i.PermMAC); {
			case proven:
				return &a, nil
			case bound:
				s.warn("interface %s: cannot tell whether the RDMA device %s is bound to it or to an interface of that name in another network namespace; "+
					"declare rdma-device in deviceInfo", i.Name, a.Name)
			}
		}
	}
	return nil, err
}

// representor returns the name of the representor of the VF or SF, if its PF's eswitch is in switchdev mode. It
// reads the mode first. In legacy mode, which most nodes use, it then reads nothing else.
func (s *search) representor(fn sysfs.Function) (name string) {
	uplink, flavour := fn.PF, link.VF
	if s.where.aux != "" {
		uplink, flavour = &fn.Address, link.SF
	}
	if uplink == nil || s.Eswitches == nil {
		return ""
	}
	on, err := s.Eswitches.Switchdev(uplink.String())
	number, ok, source := 0, false, ""
	if on {
		number, ok, err = s.numberOn(*uplink, flavour, fn)
	}
	if ok {
		name, source, err = s.Eswitches.Representor(uplink.String(), flavour, number)
	}
	switch {
	case err != nil:
		s.warn("%s: representor: %v", s.where, err)
	case on && !ok:
		s.warn("%s: cannot find its representor, because /sys does not show its number", s.where)
	case on && name == "":
		s.warn("%s: %s is in switchdev mode, but has no representor of it in this network namespace", s.where, uplink)
	}
	if name != "" {
		s.addFact("representor-device", name, source)
	}
	return name
}

func (s *search) numberOn(uplink pci.Address, flavour link.Flavour, fn sysfs.Function) (int, bool, error) {
	if flavour == link.VF {
		return s.Sys.VFIndex(uplink, fn.Address)
	}
	aux, ok, err := s.Sys.Auxiliary(s.where.aux)
	if !ok || aux.SFNumber == nil {
		return 0, false, err
	}
	return *aux.SFNumber, true, nil
}

func (s *search) addFact(key, value, source string) {
	s.found.Facts = append(s.found.Facts, Fact{string(s.found.Info.Type) + "." + key, value, source})
}

func (s *search) undescribable(why string) {
	s.found.Problem = &UndescribableError{s.where.String(), why}
}
