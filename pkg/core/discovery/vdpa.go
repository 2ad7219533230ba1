package discovery

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/host/sysfs"
)

func (s *search) describeVDPA() error {
	if s.where.vdpa == "" {
		s.undescribable("the type is vdpa, but it carries no vDPA device; create one with \"vdpa dev add\"")
		return nil
	}
	v, ok, err := s.Sys.VDPA(s.where.vdpa)
	if err != nil || !ok {
		return err
	}
	dir := "/sys/bus/vdpa/devices/" + v.Name
	d := &devinfo.VDPA{ParentDevice: v.Name}
	s.found.Info = &devinfo.Info{Type: devinfo.TypeVDPA, VDPA: d}
	s.addFact("parent-device", v.Name, s.sourceOf(v, dir))
	switch v.Driver {
	case "vhost", "virtio":
		d.Driver = v.Driver
		s.addFact("driver", d.Driver, dir+"/driver")
		d.Path = s.vdpaPath(v, dir)
	case "":
		s.undescribable("it has no driver; bind one: echo " + v.Name + " > /sys/bus/vdpa/drivers/vhost_vdpa/bind")
	default:
		s.undescribable(fmt.Sprintf("its driver %q is not supported; bind it to vhost_vdpa or virtio_vdpa", v.Driver))
	}
	if v.PCI == nil {
		return nil
	}
	if v.SF == "" || s.target.SubfunctionParent { // else a VM would get the parent of the SF
		d.Address = v.PCI.String()
		s.addFact("pci-address", d.Address, dir)
	}
	fn, ok, err := s.function(*v.PCI)
	if err != nil || !ok {
		return err
	}
	d.PFAddress = s.pf(fn)
	d.Representor = s.representor(fn)
	return nil
}

func (s *search) sourceOf(v sysfs.VDPA, dir string) string {
	if n := slices.IndexFunc(s.statements, func(c statement) bool { return c.ref.vdpa == v.Name }); n >= 0 {
		return s.statements[n].source
	}
	return dir
}

// vdpaPath returns the character device of vhost_vdpa, or the virtio device of virtio_vdpa. (The
// specification's "/dev/sys/bus/virtio" is a typing error.)
func (s *search) vdpaPath(v sysfs.VDPA, dir string) string {
	if v.Driver == "vhost" {
		if v.Vhost == "" {
			s.warn("%s: is bound to vhost_vdpa, but has no vhost-vdpa-N", dir)
			return ""
		}
		s.addFact("path", "/dev/"+v.Vhost, dir+"/"+v.Vhost)
		return "/dev/" + v.Vhost
	}
	name, source := s.virtioOf(v)
	if name == "" {
		s.warn("%s: cannot tell which virtio device belongs to it (%s)", dir, strings.Join(v.Virtio, ", "))
		return ""
	}
	path := "/sys/bus/virtio/devices/" + name
	s.addFact("path", path, source)
	return path
}

// virtioOf returns the vDPA device's virtio device: the only one, the one below the pod's interface, or the one
// with the same hardware address. Several vDPA devices on a function may have one address.
func (s *search) virtioOf(v sysfs.VDPA) (name, source string) {
	if len(v.Virtio) == 1 {
		return v.Virtio[0], "/sys/bus/virtio/devices/" + v.Virtio[0]
	}
	if slices.Contains(v.Virtio, s.virtio) {
		return s.virtio, "interface " + s.target.IfName + " (netlink)"
	}
	mac, ok, err := s.Interfaces.VDPAMAC(v.Name)
	if err != nil {
		s.warn("vdpa %s: hardware address: %v", v.Name, err)
	}
	if !ok {
		return "", ""
	}
	for _, virtio := range v.Virtio {
		its, seen, err := s.Sys.VirtioMAC(virtio)
		if err != nil {
			s.warn("%s: hardware address: %v", virtio, err)
		}
		switch {
		case !seen || !strings.EqualFold(its, mac.String()):
		case name != "" || s.hasTwin(v, mac):
			return "", "" // another vDPA device has the same address
		default:
			name, source = virtio, "the hardware address "+its
		}
	}
	return name, source
}

// hasTwin reports whether another vDPA device on the function has the hardware address. Its interface may be in another
// network namespace.
func (s *search) hasTwin(v sysfs.VDPA, mac net.HardwareAddr) bool {
	all, err := s.Sys.VDPAs()
	if err != nil {
		s.warn("vdpa %s: is there another one with its hardware address: %v", v.Name, err)
	}
	return err != nil || slices.ContainsFunc(all, func(other sysfs.VDPA) bool {
		its, _, err := s.Interfaces.VDPAMAC(other.Name)
		return other.Name != v.Name && slices.Equal(other.Virtio, v.Virtio) && (err != nil || slices.Equal(its, mac))
	})
}
