package discovery

import (
	"cmp"
	"fmt"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
)

type statement struct {
	source  string
	ref     ref
	missing bool // no such device on this node
}

func (s *search) identify() error {
	for _, source := range []func() error{
		func() error { return s.fromInfo("the configuration's deviceInfo", s.target.Declared) },
		s.fromDeviceIDs,
		func() error { return s.fromInfo("the device-info file", s.target.Existing) },
		func() error {
			_, err := s.state("the result's pciID", s.target.PCIID, s.resolve, notHere)
			return err
		},
		s.fromInterface, // last: classify and Find look for its statement at the end
	} {
		if err := source(); err != nil {
			return err
		}
	}
	return s.join()
}

const notHere = "is not a device on this node"

// state records the device that a source names. It returns false if no device can have that name, and adds the warning
// otherwise unless that is "". A socket has no name.
func (s *search) state(source, name string, resolve func(string) (ref, bool, error), otherwise string) (ok bool, err error) {
	if name == "" || IsSocket(s.typ()) {
		return false, nil
	}
	r, there, err := resolve(name)
	if err != nil {
		return false, fmt.Errorf("%s: %s: %w", source, name, err)
	}
	if r == (ref{}) {
		if otherwise != "" {
			s.warn("%s: %q %s", source, name, otherwise)
		}
		return false, nil
	}
	s.statements = append(s.statements, statement{source, r, !there})
	return true, nil
}

// resolve looks up a PCI address, an auxiliary device or a vDPA device. The reference to a PCI address is valid
// even if the device is missing. For any other unknown name it returns the zero ref.
func (s *search) resolve(name string) (r ref, there bool, err error) {
	if a, err := pci.Parse(name); err == nil {
		_, there, err := s.function(a)
		return ref{pci: &a}, there, err
	}
	if r, there, err = s.resolveAuxiliary(name); err == nil && !there {
		r, there, err = s.resolveVDPA(name)
	}
	if !there {
		r = ref{}
	}
	return r, there, err
}

// resolveAuxiliary looks up an auxiliary device. If it is not an SF and carries vDPA devices, resolveAuxiliary
// returns its PCI function instead.
func (s *search) resolveAuxiliary(name string) (r ref, there bool, err error) {
	aux, ok, err := s.Sys.Auxiliary(name)
	if err != nil || !ok {
		return ref{}, false, err
	}
	if !aux.IsSF() && aux.PCI != nil {
		if list, err := s.Sys.VDPAOn(aux); err != nil || len(list) > 0 {
			return ref{pci: aux.PCI}, true, err
		}
	}
	return ref{aux: name, pci: aux.PCI}, true, nil
}

// resolveVDPA looks up a name that can only be a vDPA device.
func (s *search) resolveVDPA(name string) (r ref, there bool, err error) {
	v, ok, err := s.Sys.VDPA(name)
	if !ok {
		return ref{vdpa: name}, false, err
	}
	return ref{vdpa: name, aux: v.SF, pci: v.PCI}, true, nil
}

func (s *search) fromInfo(source string, info *devinfo.Info) error {
	name := Identity(info)
	if name == "" || IsSocket(info.Type) {
		return nil
	}
	resolve := s.resolve
	if info.Type == devinfo.TypeVDPA && info.VDPA.ParentDevice != "" {
		resolve = s.resolveVDPA
	}
	_, err := s.state(source, name, resolve, notHere)
	return err
}

// Identity returns the value that names the device in info: pci-address for pci, parent-device or else
// pci-address for vdpa, and path for sockets. It returns "" if info is nil or names no device.
func Identity(info *devinfo.Info) string {
	switch d := info.Device().(type) {
	case *devinfo.PCI:
		return strings.ToLower(d.Address)
	case *devinfo.VDPA:
		return cmp.Or(d.ParentDevice, strings.ToLower(d.Address))
	case *devinfo.VhostUser:
		return d.Path
	case *devinfo.Memif:
		return d.Path
	}
	return ""
}

// fromDeviceIDs states each distinct ID once, under the first key that contains it.
func (s *search) fromDeviceIDs() error {
	seen := map[string]bool{}
	for _, named := range s.target.DeviceIDs {
		if seen[named.ID] {
			continue
		}
		seen[named.ID] = true
		const opaque = "is not a PCI address, auxiliary device or vDPA device on this node; treating it as opaque"
		if _, err := s.state(named.Key, named.ID, s.resolve, opaque); err != nil {
			return err
		}
	}
	return nil
}

// join merges all statements into one device, or fails if two contradict each other. The most specific one wins,
// such as a vDPA device over the function that carries it.
func (s *search) join() error {
	s.where.vdpaUnknown = len(s.statements) > 0
	for n, c := range s.statements {
		s.where.vdpaUnknown = s.where.vdpaUnknown && c.ref.vdpaUnknown
		for _, earlier := range s.statements[:n] {
			if !incomparable(earlier, c) && !s.mayBeSame(earlier.ref, c.ref) {
				return &ConflictError{earlier.source, earlier.ref.String(), c.source, c.ref.String()}
			}
		}
		s.where.pci = cmp.Or(s.where.pci, c.ref.pci)
		s.where.aux = cmp.Or(s.where.aux, c.ref.aux)
		s.where.vdpa = cmp.Or(s.where.vdpa, c.ref.vdpa)
	}
	s.found.SF = s.where.aux
	return nil
}

// incomparable reports whether one statement names a missing vDPA device and the other names none. Only the kernel
// could tell whether they agree.
func incomparable(a, b statement) bool {
	return a.missing && a.ref.vdpa != "" && b.ref.vdpa == "" || b.missing && b.ref.vdpa != "" && a.ref.vdpa == ""
}

// mayBeSame reports whether two references can mean one device. They must agree in the most specific field that
// both have. A function and an SF on it are different devices, unless the configuration sets subfunctionParent or
// one reference comes from a virtio device alone.
func (s *search) mayBeSame(a, b ref) bool {
	switch {
	case a.vdpa != "" && b.vdpa != "":
		return a.vdpa == b.vdpa
	case a.aux != "" && b.aux != "":
		return a.aux == b.aux
	case (a.aux == "") != (b.aux == "") && !s.target.SubfunctionParent && !a.vdpaUnknown && !b.vdpaUnknown:
		return false
	case a.pci != nil && b.pci != nil:
		return *a.pci == *b.pci
	}
	return false
}
