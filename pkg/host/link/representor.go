package link

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/rtnetlink"
)

// ErrSeveralRepresentors is the error for a function with more than one possible representor.
var ErrSeveralRepresentors = errors.New("several representors")

// Representor returns the interface that represents a VF or SF of the PF at a PCI address, and where that was read. It
// searches the PF's devlink ports, and then phys_switch_id and phys_port_name in sysfs. Call Switchdev first.
//
// name is "" if the function has no representor. For two candidates the error is ErrSeveralRepresentors, unless the
// PCI function of the PF decides between them.
func (e Eswitch) Representor(pf string, flavour Flavour, number int) (name, source string, err error) {
	address, err := pci.Parse(pf)
	if err == nil && number < 0 {
		err = fmt.Errorf("%d is not the number of a VF or SF", number)
	}
	if err != nil {
		return "", "", err
	}
	f := function{address, flavour, uint64(number)}
	var found, unclear []candidate
	ports, broken := e.Ports(address.String())
	if found = f.among(ports); len(found) == 0 {
		found, unclear, err = e.inSysfs(f, ports)
	}
	switch {
	case len(found) > 0:
		name, source, err = f.choose(found)
	case err == nil && broken != nil && !rtnetlink.Absent(broken):
		err = broken // the unread list may contain a representor
	case err == nil && len(unclear) > 0:
		err = fmt.Errorf("%s may represent a function of another host, because devlink does not list it", unclear[0].name)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: find a representor: %w", pf, err)
	}
	return name, source, nil
}

// A function is a VF or SF, with its number on the PF.
type function struct {
	pf      pci.Address
	flavour Flavour
	number  uint64
}

// A candidate is an interface that represents the function if the PF matches.
type candidate struct {
	name   string
	pf     uint64 // number of the PF in the port's attributes or name
	source string
}

// among returns the devlink ports of the function, by the attributes DEVLINK_ATTR_PORT_*
// (include/uapi/linux/devlink.h).
//
// External ports belong to another PF, which may be in the server of a DPU (Documentation/networking/devlink/devlink-port.rst,
// Linux 5.10). A local port may have a controller other than 0; without the attribute, that controller is another's. A port has no interface name if its interface is in
// another network namespace or does not exist yet.
func (f function) among(ports []PortRecord) (found []candidate) {
	for _, p := range ports {
		if !p.external() && p.Netdev != "" && f.is(p) {
			found = append(found, candidate{p.Netdev, value(p.PFNumber), "devlink ports of pci/" + f.pf.String()})
		}
	}
	return found
}

func (p PortRecord) external() bool {
	if p.External != nil {
		return *p.External
	}
	return value(p.Controller) != 0
}

func (f function) is(p PortRecord) bool {
	if f.flavour == SF {
		return p.Flavour == flavourSF && p.SFNumber != nil && value(p.SFNumber) == f.number
	}
	return p.Flavour == flavourVF && p.VFNumber != nil && value(p.VFNumber) == f.number
}

func value[T uint16 | uint32](attribute *T) uint64 {
	if attribute == nil {
		return 0
	}
	return uint64(*attribute)
}

// inSysfs searches /sys/class/net for drivers without devlink ports for representors, such as bnxt_en. It leaves out
// the external ports that devlink lists. unclear are interfaces whose name has a controller, which may be one of this host
// or of another. If inSysfs returns an error, the result may be incomplete.
func (e Eswitch) inSysfs(f function, ports []PortRecord) (found, unclear []candidate, err error) {
	_, id, err := e.switchID(f.pf.String(), math.MaxInt)
	if err != nil || id == "" {
		return nil, nil, err
	}
	all, err := fs.ReadDir(e.Sys, "class/net")
	for _, entry := range all {
		file := "class/net/" + entry.Name() + "/phys_port_name"
		port, unread := e.attribute(file)
		p := parsePortName(port)
		ok := p.known && p.flavour == f.flavour && p.number == f.number &&
			!slices.ContainsFunc(ports, func(p PortRecord) bool { return p.Netdev == entry.Name() && p.external() })
		if ok {
			ok, unread = e.onSwitch(entry.Name(), id, f.pf, p.pf)
		}
		c := candidate{entry.Name(), p.pf, "/sys/" + file}
		switch {
		case ok && p.controller:
			unclear = append(unclear, c)
		case ok:
			found = append(found, c)
		}
		err = cmp.Or(err, unread)
	}
	return found, unclear, err
}

// onSwitch reports whether the interface is on the PF's switch. An interface without a parent device
// (Documentation/networking/representors.rst) must also have the number of the PF's PCI function, because PFs of a
// card may share the phys_switch_id.
func (e Eswitch) onSwitch(name, id string, address pci.Address, pf uint64) (bool, error) {
	its, err := e.attribute("class/net/" + name + "/phys_switch_id")
	if err != nil || its != id {
		return false, err
	}
	below, err := e.there("bus/pci/devices/" + address.String() + "/net/" + name)
	if below || err != nil {
		return below, err
	}
	elsewhere, err := e.there("class/net/" + name + "/device")
	return !elsewhere && err == nil && pf == uint64(address.Function), err
}

// choose returns one of the candidates. If several PFs of a device have a port with this number, it takes the PF
// whose number is the PCI function, as in mlx5, ice and bnxt_en. A single candidate is not checked, because mlx5 of
// Linux 5.6 also encodes the device number, and a VM may show a different function.
func (f function) choose(found []candidate) (name, source string, err error) {
	same := slices.DeleteFunc(slices.Clone(found), func(c candidate) bool { return c.pf != uint64(f.pf.Function) })
	if len(same) > 0 {
		found = same
	}
	if len(found) > 1 {
		return "", "", fmt.Errorf("%w: %s and %s", ErrSeveralRepresentors, found[0].name, found[1].name)
	}
	return found[0].name, found[0].source, nil
}

func (e Eswitch) there(name string) (bool, error) {
	_, err := fs.Lstat(e.Sys, name)
	if rtnetlink.Absent(err) {
		return false, nil
	}
	return err == nil, err
}

// A portName is a parsed phys_port_name. Drivers and devlink print these forms, where N is a number:
//
//	pN, pNsN, lNpN, lNpNsN             a port of the card, a split port, one of a line card (net/devlink/port.c,
//	                                   mlx5/core/en_rep.c, nfp/nfp_port.c)
//	nN                                 a data interface of nfp (nfp/nfp_net_common.c)
//	sby                                the standby interface of virtio_net (virtio_net.c)
//	pfN, pfNvfN, pfNsfN                representor of a PF, VF, SF (net/devlink/port.c; mlx5/core/en_rep.c, nfp/nfp_port.c,
//	                                   bnxt/bnxt_vfr.c, liquidio/lio_vf_rep.c, hisilicon/hns3/hns3pf/hclge_vf_rep.c)
//	cNpfN, cNpfNvfN, cNpfNsfN          the same for a controller other than 0, of the server of a DPU or of this host (net/devlink/port.c)
//	pfNsN                              representor of one of a PF's interfaces (nfp/nfp_port.c)
//	pNpfNvfN                           representor of a VF (sfc/ef100_rep.c)
//	pNifNpfN, pNifNpfNvfN              the same for another interface of the card (sfc/ef100_rep.c of the vendor)
//	pfNvfrN                            representor of a VSI, whose number is not that of a VF (intel/ice/ice_repr.c)
//	N                                  representor of mlx5 until Linux 4.20
type portName struct {
	represents bool // the interface is a representor
	known      bool // it represents a VF or SF, which the following fields identify
	controller bool // the name has a controller, which may be one of another host
	flavour    Flavour
	pf, number uint64
}

func parsePortName(name string) (p portName) {
	words, numbers := tokens(name)
	p.represents = strings.Contains(name, "pf") || len(words) == 1 && words[0] == ""
	if len(words) == 3 && (words[0] == "p" || words[0] == "c") {
		p.controller = words[0] == "c"
		words, numbers = words[1:], numbers[1:]
	}
	if len(words) != 2 || words[0] != "pf" || words[1] != "vf" && words[1] != "sf" {
		return p
	}
	if words[1] == "sf" {
		p.flavour = SF
	}
	p.known, p.pf, p.number = numbers[0] < 1<<16, numbers[0], numbers[1]
	return p
}

// tokens splits a name such as "pf0vf3" into words and the 32-bit numbers after them. It returns none for other names.
func tokens(name string) (words []string, numbers []uint64) {
	const digits = "0123456789"
	for name != "" {
		start := max(strings.IndexAny(name, digits), 0)
		rest := strings.TrimLeft(name[start:], digits)
		n, err := strconv.ParseUint(name[start:len(name)-len(rest)], 10, 32)
		if err != nil {
			return nil, nil
		}
		words, numbers, name = append(words, name[:start]), append(numbers, n), rest
	}
	return words, numbers
}
