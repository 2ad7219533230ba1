package discovery

import (
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/pci"
	"devinfo-cni.io/pkg/sysfs"
)

// describe fills in Device.Info for the type at hand. Only a kernel that cannot
// be read where the device itself is concerned is an error; optional facts that
// cannot be had are warnings.
func (s *search) describe() error {
	for _, c := range s.claims {
		if c.missing {
			s.found.Problem = &MissingError{c.source, c.ref.String()}
			return nil
		}
	}
	switch t := s.typ(); {
	case socketType(t):
		s.describeSocket(t)
		return nil
	case s.where == (ref{}):
		if s.target.SocketPath != "" {
			s.found.Problem = &UndescribableError{
				"the socket " + s.target.SocketPath + " (the result's socketPath)",
				`nothing says whether it is vhost-user or memif; declare "deviceInfo": {"type": …}`,
			}
		}
		return nil
	case t == "" || t == devinfo.TypeVDPA && s.where.vdpa == "":
		if err := s.lookForVDPA(); err != nil {
			return err
		}
	}
	if s.typ() == devinfo.TypeVDPA {
		return s.describeVDPA()
	}
	return s.describePCI()
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
	if err := info.ValidateDeclared().Err(); err != nil { // readers mangle blanks and the like
		s.found.Problem = &UndescribableError{"the socket of the result's socketPath", err.Error()}
		return
	}
	s.found.Info = info
	s.fact(t, "path", s.target.SocketPath, "the result's socketPath")
}

// lookForVDPA takes the bound vDPA device that the function or the SF carries, if
// any, for the device. Where the type must be vdpa, an unbound one will do: then
// what is wrong with it can be said.
func (s *search) lookForVDPA() error {
	all, err := s.carriedVDPA()
	if err != nil {
		return fmt.Errorf("%s: %w", s.where, err)
	}
	unbound := func(v sysfs.VDPA) bool { return v.Driver == "" }
	list := slices.DeleteFunc(slices.Clone(all), unbound)
	if len(list) == 0 && s.typ() == devinfo.TypeVDPA {
		list = all
	}
	if len(list) == 0 {
		return nil
	}
	if len(list) > 1 {
		s.warn("%s carries %d vDPA devices; %s is taken: name the right one by deviceID", s.where, len(list), list[0].Name)
	}
	s.where.vdpa = list[0].Name
	return nil
}

func (s *search) carriedVDPA() ([]sysfs.VDPA, error) {
	if s.where.aux != "" {
		aux, ok, err := s.Sys.Auxiliary(s.where.aux)
		if !ok {
			return nil, err
		}
		return s.Sys.VDPAOnAuxiliary(aux)
	}
	fn, ok, err := s.function(*s.where.pci)
	if !ok {
		return nil, err
	}
	return s.Sys.VDPAOn(fn)
}

func (s *search) describePCI() error {
	if s.where.aux != "" && !s.target.SubfunctionParent {
		s.found.Problem = &UndescribableError{s.where.String(), "the specification has no type for a sub-function, and its parent's PCI address " +
			`would hand the whole parent to a VM; "subfunctionParent": true writes it all the same`}
		return nil
	}
	if s.where.beside && s.typ() == "" {
		s.found.Problem = &UndescribableError{"interface " + s.target.IfName, "its " + s.virtio + " is that of a vDPA device of " + s.where.String() +
			", which the kernel does not name; name the vDPA device by deviceID"}
		return nil
	}
	if s.where.pci == nil {
		s.found.Problem = &UndescribableError{s.where.String(), "the type is pci, but it has no PCI address"}
		return nil
	}
	fn, ok, err := s.function(*s.where.pci)
	if err != nil || !ok {
		return err
	}
	address, dir := fn.Address.String(), "/sys/bus/pci/devices/"+fn.Address.String()
	info := &devinfo.Info{Type: devinfo.TypePCI, PCI: &devinfo.PCI{Address: address}}
	s.found.Info = info
	s.fact(info.Type, "pci-address", address, s.claims[0].source)
	if fn.PF != nil {
		info.PCI.PFAddress = fn.PF.String()
		s.fact(info.Type, "pf-pci-address", info.PCI.PFAddress, dir+"/physfn")
	}
	info.PCI.RDMADevice = s.rdma(fn)
	info.PCI.Representor = s.representor(info.Type, fn)
	return nil
}

func (s *search) describeVDPA() error {
	if s.where.vdpa == "" {
		s.found.Problem = &UndescribableError{s.where.String(), "the type is vdpa, but it carries no vDPA device; create one with \"vdpa dev add\""}
		return nil
	}
	v, ok, err := s.Sys.VDPA(s.where.vdpa)
	if err != nil || !ok {
		return err
	}
	dir := "/sys/bus/vdpa/devices/" + v.Name
	d := &devinfo.VDPA{ParentDevice: v.Name}
	s.found.Info = &devinfo.Info{Type: devinfo.TypeVDPA, VDPA: d}
	s.fact(devinfo.TypeVDPA, "parent-device", v.Name, s.namedBy(v, dir))
	switch v.Driver {
	case "vhost", "virtio":
		d.Driver = v.Driver
		s.fact(devinfo.TypeVDPA, "driver", d.Driver, dir+"/driver")
		d.Path = s.vdpaPath(v, dir)
	case "":
		s.found.Problem = &UndescribableError{s.where.String(), "it is bound to no driver; bind it: echo " + v.Name + " > /sys/bus/vdpa/drivers/vhost_vdpa/bind"}
	default:
		s.found.Problem = &UndescribableError{s.where.String(), fmt.Sprintf("its driver %q is neither vhost_vdpa nor virtio_vdpa", v.Driver)}
	}
	if v.PCI == nil {
		return nil
	}
	d.Address = v.PCI.String()
	s.fact(devinfo.TypeVDPA, "pci-address", d.Address, dir)
	fn, ok, err := s.function(*v.PCI)
	if err != nil || !ok {
		return err
	}
	if fn.PF != nil {
		d.PFAddress = fn.PF.String()
		s.fact(devinfo.TypeVDPA, "pf-pci-address", d.PFAddress, "/sys/bus/pci/devices/"+d.Address+"/physfn")
	}
	d.Representor = s.representor(devinfo.TypeVDPA, fn)
	return nil
}

// namedBy is the source that named the vDPA device itself; where all of them named
// the function or the SF, it was found below that.
func (s *search) namedBy(v sysfs.VDPA, dir string) string {
	for _, c := range s.claims {
		if c.ref.vdpa == v.Name {
			return c.source
		}
	}
	return dir
}

// vdpaPath gives the vDPA device's path: the character device of vhost_vdpa, or
// the virtio device of virtio_vdpa. (The specification's "/dev/sys/bus/virtio"
// is a slip of the pen.)
func (s *search) vdpaPath(v sysfs.VDPA, dir string) string {
	if v.Driver == "vhost" {
		if v.Vhost == "" {
			s.warn("%s: is bound to vhost_vdpa, but has no vhost-vdpa-N", dir)
			return ""
		}
		s.fact(devinfo.TypeVDPA, "path", "/dev/"+v.Vhost, dir+"/"+v.Vhost)
		return "/dev/" + v.Vhost
	}
	name, source := s.virtioOf(v)
	if name == "" {
		s.warn("%s: cannot tell which virtio device is its own (%s)", dir, strings.Join(v.Virtio, ", "))
		return ""
	}
	path := "/sys/bus/virtio/devices/" + name
	s.fact(devinfo.TypeVDPA, "path", path, source)
	return path
}

// virtioOf picks the vDPA device's virtio device: the only one, the one that the
// pod's interface is on, or the one with the same hardware address.
func (s *search) virtioOf(v sysfs.VDPA) (name, source string) {
	if len(v.Virtio) == 1 {
		return v.Virtio[0], "/sys/bus/virtio/devices/" + v.Virtio[0]
	}
	for _, name := range v.Virtio {
		if name == s.virtio {
			return name, "interface " + s.target.IfName + " (netlink)"
		}
	}
	mac, ok, err := s.Interfaces.VDPAMAC(v.Name)
	if err != nil {
		s.warn("vdpa %s: hardware address: %v", v.Name, err)
	}
	for _, name := range v.Virtio {
		if !ok {
			break
		}
		if its, seen, err := s.Sys.VirtioMAC(name); err != nil {
			s.warn("%s: hardware address: %v", name, err)
		} else if seen && strings.EqualFold(its, mac.String()) {
			return name, "the hardware address " + its
		}
	}
	return "", ""
}

func (s *search) rdma(fn sysfs.Function) string {
	names, dir, err := []string(nil), "/sys/bus/pci/devices/"+fn.Address.String(), error(nil)
	if s.where.aux == "" {
		names, err = s.Sys.RDMA(fn)
	} else if aux, ok, auxErr := s.Sys.Auxiliary(s.where.aux); ok {
		dir = "/sys/bus/auxiliary/devices/" + aux.Name
		names, err = s.Sys.RDMAOf(aux)
	} else {
		err = auxErr
	}
	if err != nil {
		s.warn("%s: RDMA devices: %v", s.where, err)
	}
	if len(names) == 0 {
		return ""
	}
	list := strings.Join(names, ",")
	s.fact(devinfo.TypePCI, "rdma-device", list, dir+"/infiniband")
	return list
}

// representor gives the representor of the VF or SF, where its PF's embedded
// switch is in switchdev mode. That is asked first: in legacy mode, which most
// nodes are in, nothing else is.
func (s *search) representor(t devinfo.Type, fn sysfs.Function) string {
	uplink, flavour := fn.PF, link.VF
	if s.where.aux != "" {
		uplink, flavour = &fn.Address, link.SF
	}
	if uplink == nil {
		return ""
	}
	name, err := s.representorOn(*uplink, flavour, fn)
	if err != nil {
		s.warn("%s: representor: %v", s.where, err)
	}
	if name != "" {
		s.fact(t, "representor-device", name, "devlink ports of pci/"+uplink.String())
	}
	return name
}

func (s *search) representorOn(uplink pci.Address, flavour link.Flavour, fn sysfs.Function) (string, error) {
	if on, err := s.Switches.Switchdev(uplink.String()); err != nil || !on {
		return "", err
	}
	number, ok, err := s.numberOn(uplink, flavour, fn)
	if err != nil || !ok {
		return "", err
	}
	name, _, err := s.Switches.Representor(uplink.String(), flavour, number)
	return name, err
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

func (s *search) fact(t devinfo.Type, key, value, source string) {
	s.found.Facts = append(s.found.Facts, Fact{string(t) + "." + key, value, source})
}
