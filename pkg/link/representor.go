package link

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

// ErrSeveralRepresentors says that more than one interface may stand for a function.
var ErrSeveralRepresentors = errors.New("several representors")

// Representor names the interface that stands for the VF or SF of that number on the PF at
// that PCI address: found among the PF's devlink ports, or else by phys_switch_id and
// phys_port_name in sysfs. Ask Switchdev first.
//
// ok is false if there is none. Two candidates are ErrSeveralRepresentors, unless one's PF
// number is the PF's PCI function.
func (e Eswitch) Representor(pf string, flavour Flavour, number int) (name string, ok bool, err error) {
	address, err := pci.Parse(pf)
	if err == nil && number < 0 {
		err = fmt.Errorf("%d is not the number of a VF or SF", number)
	}
	if err != nil {
		return "", false, err
	}
	f := function{address, flavour, uint64(number)}
	var found []candidate
	ports, broken := e.Ports(address.String())
	if broken == nil { // else it may be half of them
		found = f.among(ports)
	}
	if len(found) == 0 {
		found, err = e.inSysfs(f)
	}
	switch {
	case len(found) > 0:
		name, err = f.choose(found)
	case err == nil && !absent(broken):
		err = broken // nobody knows: that is not "none"
	}
	if err != nil {
		return "", false, fmt.Errorf("%s: find a representor: %w", pf, err)
	}
	return name, name != "", nil
}

// A function is what a representor stands for: the VF or SF of that number on a PF.
type function struct {
	pf      pci.Address
	flavour Flavour
	number  uint64
}

// A candidate is an interface that is the function's representor, if its PF is.
type candidate struct {
	name string
	pf   uint64 // the PF's number in the port's attributes or name
}

// among has the devlink ports of the function, as the attributes
// DEVLINK_ATTR_PORT_* say (include/uapi/linux/devlink.h).
//
// The PF that has the eswitch is on controller 0. External ports, and with newer
// kernels those of any other controller, belong to another PF, which may be in the
// server that a DPU sits in (Documentation/networking/devlink/devlink-port.rst).
// Kernels before 5.10 have no attribute for either. A port names no interface that is
// in another network namespace than we are, or not there yet.
func (f function) among(ports []*netlink.DevlinkPort) (found []candidate) {
	for _, p := range ports {
		external := p.External != nil && *p.External || value(p.ControllerNumber) != 0
		if !external && p.NetdeviceName != "" && f.is(p) {
			found = append(found, candidate{p.NetdeviceName, value(p.PfNumber)})
		}
	}
	return found
}

func (f function) is(p *netlink.DevlinkPort) bool {
	if f.flavour == SF {
		return p.PortFlavour == nl.DEVLINK_PORT_FLAVOUR_PCI_SF && p.SfNumber != nil && value(p.SfNumber) == f.number
	}
	return p.PortFlavour == nl.DEVLINK_PORT_FLAVOUR_PCI_VF && p.VfNumber != nil && value(p.VfNumber) == f.number
}

// value is that of an attribute; 0 if the kernel does not give it.
func value[T uint16 | uint32](attribute *T) uint64 {
	if attribute == nil {
		return 0
	}
	return uint64(*attribute)
}

// inSysfs looks through /sys/class/net, for the drivers whose representors have no
// devlink port, such as bnxt_en. With an error there may be more than is found.
func (e Eswitch) inSysfs(f function) (found []candidate, err error) {
	id, err := e.switchID(f.pf.String())
	if err != nil || id == "" {
		return nil, err
	}
	all, err := fs.ReadDir(e.Sys, "class/net")
	if absent(err) {
		return nil, nil
	}
	for _, entry := range all {
		port, unread := e.attribute("class/net/" + entry.Name() + "/phys_port_name")
		pf, ok := f.named(port)
		if ok {
			ok, unread = e.onSwitch(entry.Name(), id, f.pf, pf)
		}
		if ok {
			found = append(found, candidate{entry.Name(), pf})
		}
		err = cmp.Or(err, unread)
	}
	return found, err
}

// onSwitch says whether the interface is on the PF's switch. One without a parent,
// as Documentation/networking/representors.rst wants it, must also name the PF's
// function: PFs of a card may share the phys_switch_id.
func (e Eswitch) onSwitch(name, id string, address pci.Address, pf uint64) (bool, error) {
	its, err := e.attribute("class/net/" + name + "/phys_switch_id")
	if err != nil || its != id {
		return false, err
	}
	if e.there("bus/pci/devices/" + address.String() + "/net/" + name) {
		return true, nil
	}
	return !e.there("class/net/"+name+"/device") && pf == uint64(address.Function), nil
}

// named reads a phys_port_name, "pf0vf3" or "pf0sf88", as the kernel writes it in
// __devlink_port_phys_port_name_get (net/devlink/port.c). That of another
// controller begins with "c" and its number.
func (f function) named(port string) (pf uint64, ok bool) {
	kind := "vf"
	if f.flavour == SF {
		kind = "sf"
	}
	rest, ok := strings.CutPrefix(port, "pf")
	first, second, cut := strings.Cut(rest, kind)
	pf, err := strconv.ParseUint(first, 10, 16)
	number, err2 := strconv.ParseUint(second, 10, 32)
	return pf, ok && cut && err == nil && err2 == nil && number == f.number
}

// choose names the candidate of at least one. Ports of several PFs on one
// device are told apart by the PF's PCI function, which is its number in mlx5, ice
// and bnxt_en. It is not asked otherwise: mlx5 of Linux 5.6 has the device's number in
// it, too, and in a VM the function may be another.
func (f function) choose(found []candidate) (string, error) {
	if len(found) > 1 {
		same := slices.DeleteFunc(slices.Clone(found), func(c candidate) bool { return c.pf != uint64(f.pf.Function) })
		if len(same) > 0 {
			found = same
		}
	}
	if len(found) > 1 {
		return "", fmt.Errorf("%w: %s and %s", ErrSeveralRepresentors, found[0].name, found[1].name)
	}
	return found[0].name, nil
}

// attribute reads a file of sysfs; "" if it is not there, or the driver refuses it.
func (e Eswitch) attribute(name string) (string, error) {
	text, err := fs.ReadFile(e.Sys, name)
	if err != nil && !absent(err) {
		return "", err
	}
	return string(bytes.TrimSpace(text)), nil
}

func (e Eswitch) there(name string) bool {
	_, err := fs.Lstat(e.Sys, name)
	return err == nil
}
