package opinion_test

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/opinion/opiniontest"
)

// A switchOf is a switch that no driver makes: bytes choose its ports and interfaces.
type switchOf struct {
	pf      string
	flavour link.Flavour
	number  int
	ports   []*netlink.DevlinkPort
	err     error // of devlink
	netdevs []netdev
	id      string // the PF's phys_switch_id
}

type netdev struct {
	name, port, id string // port and id are phys_port_name and phys_switch_id; "" = EOPNOTSUPP
	parent         string // a PCI address; "" = none
}

// dice gives out bytes; zeros at the end.
type dice []byte

func (d *dice) of(n int) int {
	if len(*d) == 0 {
		return 0
	}
	b := (*d)[0]
	*d = (*d)[1:]
	return int(b) % n
}

func pick[T any](d *dice, values ...T) T { return values[d.of(len(values))] }

func thrown(data []byte) (s switchOf) {
	d := (*dice)(&data)
	s.pf = pick(d, "0000:03:00.0", "0000:03:00.1", "10000:e1:00.0")
	s.flavour, s.number = pick(d, link.VF, link.SF), pick(d, 0, 1, 65536)
	s.id = pick(d, "aa", "")
	s.err = pick[error](d, nil, nil, syscall.ENODEV, syscall.EMSGSIZE)
	for n := range d.of(6) {
		s.ports = append(s.ports, &netlink.DevlinkPort{
			NetdeviceName: pick(d, fmt.Sprint("dev", n), ""),
			PortFlavour:   pick[uint16](d, nl.DEVLINK_PORT_FLAVOUR_PCI_VF, nl.DEVLINK_PORT_FLAVOUR_PCI_SF, nl.DEVLINK_PORT_FLAVOUR_PCI_PF, nl.DEVLINK_PORT_FLAVOUR_PHYSICAL, 99),
			VfNumber:      pick(d, new(uint16(0)), new(uint16(1)), nil), SfNumber: pick(d, new(uint32(0)), new(uint32(65536)), nil),
			PfNumber: pick(d, new(uint16(0)), new(uint16(1)), nil), ControllerNumber: pick(d, new(uint32(0)), new(uint32(1)), nil),
			External: pick(d, new(false), new(true), nil),
		})
	}
	for n := range d.of(6) {
		net := netdev{
			name:   fmt.Sprint("sys", n),
			port:   pick(d, "pf", "pf", "c1pf", "c0pf", "", "p", "pf0") + pick(d, "0", "1", "70000") + pick(d, "vf", "sf", "", "vf0") + pick(d, "0", "1", "65536", "00", "+1"),
			id:     pick(d, s.id, "bb", ""),
			parent: pick(d, s.pf, "", "0000:04:00.0"),
		}
		if net.parent == s.pf && s.id == "" {
			net.id = "" // or it would be the PF's
		}
		s.netdevs = append(s.netdevs, net)
	}
	return s
}

func (s switchOf) eswitch() link.Eswitch {
	sys := fstest.MapFS{"class/net": {Mode: fs.ModeDir}}
	for _, n := range append(s.netdevs, netdev{"a", "p0", s.id, s.pf}) {
		dir := "class/net/" + n.name
		if n.parent != "" {
			dir = "bus/pci/devices/" + n.parent + "/net/" + n.name
			sys["class/net/"+n.name] = &fstest.MapFile{Data: []byte("../../" + dir), Mode: fs.ModeSymlink}
			sys[dir+"/device"] = &fstest.MapFile{Data: []byte("../../../" + n.parent), Mode: fs.ModeSymlink}
		}
		sys[dir+"/mtu"] = &fstest.MapFile{Data: []byte("1500\n")}
		for name, text := range map[string]string{"phys_port_name": n.port, "phys_switch_id": n.id} {
			if text != "" {
				sys[dir+"/"+name] = &fstest.MapFile{Data: []byte(text + "\n")}
			}
		}
	}
	return link.Eswitch{
		Sys:   sys,
		Mode:  func(string) (string, error) { return "switchdev", nil },
		Ports: func(string) ([]*netlink.DevlinkPort, error) { return s.ports, s.err },
	}
}

// of says whether the port is one of the function's flavour, and has its number; not
// ok if it has none.
func (s switchOf) of(p *netlink.DevlinkPort) (flavour, number, ok bool) {
	if s.flavour == link.SF {
		return p.PortFlavour == nl.DEVLINK_PORT_FLAVOUR_PCI_SF, p.SfNumber != nil && int(*p.SfNumber) == s.number, p.SfNumber != nil
	}
	return p.PortFlavour == nl.DEVLINK_PORT_FLAVOUR_PCI_VF, p.VfNumber != nil && int(*p.VfNumber) == s.number, p.VfNumber != nil
}

// reasons name all that sriovnet answers otherwise for. None of it is known of a
// driver but for the wide domain (VMD), other controllers (mlx5 on a DPU) and
// interfaces without a parent (bnxt_en).
func (s switchOf) reasons() (list []string) {
	add := func(reason string, holds bool) {
		if holds && !slices.Contains(list, reason) {
			list = append(list, reason)
		}
	}
	add("in a wide domain sriovnet takes the address for an interface's name", len(s.pf) > len("0000:00:00.0"))
	matching := 0
	for _, p := range s.ports {
		flavour, number, ok := s.of(p)
		if !flavour || p.External != nil && *p.External || s.err != nil {
			continue
		}
		add("sriovnet gives up devlink's list at a port without a number", !ok)
		add("sriovnet gives up devlink's list at the function's port if that names no interface", number && p.NetdeviceName == "")
		add("sriovnet takes what is not external for the PF's own, whatever controller it is on", number && p.ControllerNumber != nil && *p.ControllerNumber != 0)
		if number && p.NetdeviceName != "" {
			matching++
		}
	}
	add("sriovnet does not tell PFs on one device apart", matching > 1)
	kind, named := map[link.Flavour]string{link.VF: "vf", link.SF: "sf"}[s.flavour], 0
	for _, n := range s.netdevs {
		if !strings.HasPrefix(n.port, "pf") || !strings.Contains(n.port, kind) {
			continue
		}
		named++
		add("sriovnet looks for no interface without a parent", n.parent == "")
		add("sriovnet does not look at phys_switch_id", n.parent == s.pf && (n.id != s.id || n.id == ""))
		add("no PF has a number of more than 16 bits", strings.Contains(n.port, "70000"))
	}
	add("sriovnet takes the first of several interfaces", named > 1)
	return list
}

// Whatever devlink and sysfs say, package link gives the same answer as sriovnet, or
// there is a reason why not; and never an interface of another controller or switch.
func FuzzHostileSwitch(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 1, 1, 0, 2, 0, 3, 0, 0, 1, 1, 0, 0, 0, 0, 1, 2, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		s := thrown(data)
		e := s.eswitch()
		ours, ok, err := e.Representor(s.pf, s.flavour, s.number)
		if ok != (ours != "") || ok && err != nil {
			t.Fatalf("%q, %v, %v", ours, ok, err)
		}
		theirs, theirErr := opiniontest.Sriovnet(e, s.pf, s.flavour, s.number)
		if ours != theirs && len(s.reasons()) == 0 {
			t.Fatalf("%q, %v; sriovnet: %q, %v; of %+v", ours, err, theirs, theirErr, s)
		}
		for _, p := range s.ports {
			if flavour, number, _ := s.of(p); p.NetdeviceName == ours && ok &&
				(!flavour || !number || p.External != nil && *p.External || p.ControllerNumber != nil && *p.ControllerNumber != 0) {
				t.Fatalf("%+v of %+v", p, s)
			}
		}
		for _, n := range s.netdevs {
			if n.name == ours && (n.id != s.id || s.id == "" || !strings.HasPrefix(n.port, "pf") || n.parent != "" && n.parent != s.pf) {
				t.Fatalf("%+v of %+v", n, s)
			}
		}
	})
}
