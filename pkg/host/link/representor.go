package link

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/rtnetlink"
)

// ErrSeveralRepresentors is the error for a function with more than one possible representor.
var ErrSeveralRepresentors = errors.New("several representors")

// Representor returns the interface that represents a VF or SF of the PF at a PCI address. It searches the PF's
// devlink ports, and then phys_switch_id and phys_port_name in sysfs. Call Switchdev first.
//
// ok is false if the function has no representor. For two candidates the error is ErrSeveralRepresentors, unless the
// PCI function of the PF decides between them.
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
	if broken == nil { // otherwise ports may be incomplete
		found = f.among(ports)
	}
	if len(found) == 0 {
		found, err = e.inSysfs(f)
	}
	switch {
	case len(found) > 0:
		name, err = f.choose(found)
	case err == nil && !rtnetlink.Absent(broken):
		err = broken // the unread list may contain a representor
	}
	if err != nil {
		return "", false, fmt.Errorf("%s: find a representor: %w", pf, err)
	}
	return name, name != "", nil
}

// A function is a VF or SF, with its number on the PF.
type function struct {
	pf      pci.Address
	flavour Flavour
	number  uint64
}

// A candidate is an interface that represents the function if the PF matches.
type candidate struct {
	name string
	pf   uint64 // number of the PF in the port's attributes or name
}

// among returns the devlink ports of the function, by the attributes DEVLINK_ATTR_PORT_*
// (include/uapi/linux/devlink.h).
//
// External ports belong to another PF, which may be in the server of a DPU (Documentation/networking/devlink/devlink-port.rst,
// Linux 5.10). A local port may have a controller other than 0; without the attribute, that controller is another's. A port has no interface name if its interface is in
// another network namespace or does not exist yet.
func (f function) among(ports []PortRecord) (found []candidate) {
	for _, p := range ports {
		external := value(p.Controller) != 0
		if p.External != nil {
			external = *p.External
		}
		if !external && p.Netdev != "" && f.is(p) {
			found = append(found, candidate{p.Netdev, value(p.PFNumber)})
		}
	}
	return found
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

// inSysfs searches /sys/class/net for drivers without devlink ports for representors, such as bnxt_en. If it
// returns an error, the result may be incomplete.
func (e Eswitch) inSysfs(f function) (found []candidate, err error) {
	_, id, err := e.switchID(f.pf.String(), -1)
	if err != nil || id == "" {
		return nil, err
	}
	all, err := fs.ReadDir(e.Sys, "class/net")
	if rtnetlink.Absent(err) {
		return nil, nil
	}
	for _, entry := range all {
		port, unread := e.attribute("class/net/" + entry.Name() + "/phys_port_name")
		p := parsePortName(port)
		ok := p.known && p.flavour == f.flavour && p.number == f.number
		if ok {
			ok, unread = e.onSwitch(entry.Name(), id, f.pf, p.pf)
		}
		if ok {
			found = append(found, candidate{entry.Name(), p.pf})
		}
		err = cmp.Or(err, unread)
	}
	return found, err
}

// onSwitch reports whether the interface is on the PF's switch. An interface without a parent device
// (Documentation/networking/representors.rst) must also have the number of the PF's PCI function, because PFs of a
// card may share the phys_switch_id.
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

// choose returns one of the candidates. If several PFs of a device have a port with this number, it takes the PF
// whose number is the PCI function, as in mlx5, ice and bnxt_en. A single candidate is not checked, because mlx5 of
// Linux 5.6 also encodes the device number, and a VM may show a different function.
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

func (e Eswitch) there(name string) bool {
	_, err := fs.Lstat(e.Sys, name)
	return err == nil
}

// A portName is a parsed phys_port_name. Drivers and devlink print these forms, where N is a number:
//
//	pN, pNsN, lNpN, lNpNsN             a port of the card, a split port, one of a line card (net/devlink/port.c,
//	                                   mlx5/core/en_rep.c, nfp/nfp_port.c)
//	nN                                 a data interface of nfp (nfp/nfp_net_common.c)
//	sby                                the standby interface of virtio_net (virtio_net.c)
//	pfN, pfNvfN, pfNsfN                representor of a PF, VF, SF (net/devlink/port.c; mlx5/core/en_rep.c, nfp/nfp_port.c,
//	                                   bnxt/bnxt_vfr.c, liquidio/lio_vf_rep.c, hisilicon/hns3/hns3pf/hclge_vf_rep.c)
//	cNpfN, cNpfNvfN, cNpfNsfN          the same for another controller, such as the server of a DPU (net/devlink/port.c)
//	pfNsN                              representor of one of a PF's interfaces (nfp/nfp_port.c)
//	pNpfNvfN                           representor of a VF (sfc/ef100_rep.c)
//	pNifNpfN, pNifNpfNvfN              the same for another interface of the card (sfc/ef100_rep.c of the vendor)
//	pfNvfrN                            representor of a VSI, whose number is not that of a VF (intel/ice/ice_repr.c)
//	N                                  representor of mlx5 until Linux 4.20
type portName struct {
	represents bool // the interface is a representor
	known      bool // it represents a VF or SF of this host, which the following fields identify
	flavour    Flavour
	pf, number uint64
}

func parsePortName(name string) (p portName) {
	words, numbers := tokens(name)
	p.represents = strings.Contains(name, "pf") || len(words) == 1 && words[0] == ""
	if len(words) == 3 && words[0] == "p" {
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
