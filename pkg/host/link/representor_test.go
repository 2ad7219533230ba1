package link_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/test/difftest"
)

// on returns an eswitch with devlink ports. sys comes from netdevs.
func on(sys fs.FS, ports ...link.PortRecord) link.Eswitch {
	e := eswitch(sys, "switchdev", nil)
	e.Ports = func(string) ([]link.PortRecord, error) { return ports, nil }
	return e
}

// port returns the devlink port of VF or SF n, from a description such as "eth4 pf0vf2". "c1" before the PF is
// another controller, and "external" may follow.
func port(text string) link.PortRecord {
	name, rest, _ := strings.Cut(text, " ")
	rest, external := strings.CutSuffix(rest, " external")
	p := link.PortRecord{Netdev: name, External: &external, Controller: new(uint32), PFNumber: new(uint16)}
	if strings.HasPrefix(rest, "c") {
		scan(rest, "c%d", p.Controller)
		rest = rest[strings.Index(rest, "p"):]
	}
	if strings.Contains(rest, "vf") {
		p.Flavour, p.VFNumber = "pcivf", new(uint16)
		scan(rest, "pf%dvf%d", p.PFNumber, p.VFNumber)
	} else {
		p.Flavour, p.SFNumber = "pcisf", new(uint32)
		scan(rest, "pf%dsf%d", p.PFNumber, p.SFNumber)
	}
	return p
}

func scan(text, format string, to ...any) {
	if _, err := fmt.Sscanf(text, format, to...); err != nil {
		panic(fmt.Sprintf("%q is no %s: %v", text, format, err))
	}
}

// netdevs returns a /sys with interfaces, described as "eth4 pf0vf2 ID PARENT". PARENT is a PCI address and may be
// missing. "-" is a value that the driver does not report.
func netdevs(list ...string) fstest.MapFS {
	sys := fstest.MapFS{"class/net": {Mode: fs.ModeDir}}
	for _, text := range list {
		words := append(strings.Fields(text), "")
		dir := "devices/virtual/net/" + words[0]
		if parent := words[3]; parent != "" {
			dir = "devices/" + parent + "/net/" + words[0]
			sys["bus/pci/devices/"+parent] = &fstest.MapFile{Data: []byte("../../../devices/" + parent), Mode: fs.ModeSymlink}
			sys[dir+"/device"] = &fstest.MapFile{Data: []byte("../../../" + parent), Mode: fs.ModeSymlink}
		}
		sys["class/net/"+words[0]] = &fstest.MapFile{Data: []byte("../../" + dir), Mode: fs.ModeSymlink}
		sys[dir+"/mtu"] = file("1500\n")
		for n, name := range []string{"phys_port_name", "phys_switch_id"} {
			if words[n+1] != "-" {
				sys[dir+"/"+name] = file(words[n+1] + "\n")
			}
		}
	}
	return sys
}

// wantRepresentors fails the test if a function has a different representor. want is a list such as "VF 3: eth4".
func wantRepresentors(t *testing.T, e link.Eswitch, pf string, want ...string) {
	t.Helper()
	for _, w := range want {
		var kind string
		var number int
		function, interf, _ := strings.Cut(w, ":")
		scan(function, "%s %d", &kind, &number)
		flavour := map[string]link.Flavour{"VF": link.VF, "SF": link.SF}[kind]
		got, source, err := e.Representor(pf, flavour, number)
		if (source != "") != (got != "") {
			t.Errorf("%s: %q from %q", function, got, source)
		}
		if errors.Is(err, link.ErrSeveralRepresentors) {
			got = "several"
		} else if err != nil {
			got = err.Error()
		}
		if got != strings.TrimSpace(interf) {
			t.Errorf("%s has %q, want %q", function, got, interf)
		}
	}
}

func TestRepresentorFromDevlinkPort(t *testing.T) {
	e := on(netdevs(),
		port("dev0 pf0vf0"), port("dev1 pf0vf1"), port("sub1 pf0sf1"), port("big pf0sf4000000000"),
		link.PortRecord{Netdev: "up", Flavour: "physical"},
		link.PortRecord{Netdev: "nothing", Flavour: "pcivf"},
		link.PortRecord{Netdev: "odd", Flavour: "pcivf", VFNumber: new(uint16(30)), SFNumber: new(uint32(31))},
		link.PortRecord{Netdev: "old", Flavour: "pcivf", VFNumber: new(uint16(9))}, // Linux 5.6
	)
	wantRepresentors(t, e, pf, "VF 0: dev0", "VF 1: dev1", "SF 1: sub1", "VF 2:", "SF 0:", "SF 4000000000: big", "VF 65536:", "VF 9: old", "SF 31:")
	if got, _, err := e.Representor(pf, link.VF, -1); got != "" || err == nil {
		t.Errorf("VF -1: %q, %v", got, err)
	}
}

// The name of a port and its attributes decide together, each form with each: a controller of this host may have another
// number than 0, and kernels differ in whether the name has it.
func TestPortsOfOtherControllersAreIgnored(t *testing.T) {
	const byDevlink, bySysfs = "devlink ports of pci/" + pf, "/sys/class/net/rep/phys_port_name"
	const unclear = pf + ": find a representor: rep may represent a function of another host, because devlink does not list it"
	for name, named := range map[string]string{"pf0vf7": bySysfs, "p0pf0vf7": bySysfs, "c1pf0vf7": unclear, "c0pf0vf7": unclear, "-": "", "vf7": ""} {
		e := on(netdevs("up p0 aa "+pf, "rep "+name+" aa "+pf))
		expect := func(what string, ports []link.PortRecord, broken error, want string) {
			t.Helper()
			e.Ports = func(string) ([]link.PortRecord, error) { return ports, broken }
			got, source, err := e.Representor(pf, link.VF, 7)
			if err != nil {
				source = err.Error()
			}
			if source != want || err == nil && (got == "rep") != (want != "") {
				t.Errorf("%s, %s: %q, %q; want %q", name, what, got, source, want)
			}
		}
		for _, controller := range []*uint32{nil, new(uint32), new(uint32(1)), new(uint32(2))} {
			for _, external := range []*bool{nil, new(false), new(true)} {
				local := external != nil && !*external || external == nil && (controller == nil || *controller == 0)
				p := link.PortRecord{Netdev: "rep", Flavour: "pcivf", Controller: controller, External: external, PFNumber: new(uint16), VFNumber: new(uint16(7))}
				what := fmt.Sprintf("controller %v, external %v", controller, external)
				expect(what, []link.PortRecord{p}, nil, map[bool]string{true: byDevlink}[local])
				p.Netdev = "" // in another network namespace, or not there yet
				expect(what+", no interface", []link.PortRecord{p}, nil, named)
			}
		}
		expect("no port", nil, nil, named)
		expect("no devlink", nil, syscall.ENODEV, named)
		if named != bySysfs {
			expect("unreadable", nil, syscall.EMSGSIZE, pf+": find a representor: "+syscall.EMSGSIZE.Error())
		}
	}
	e := on(netdevs("up p0 aa "+pf), port("host3 c1pf0vf3 external"), port("own3 pf0vf3"))
	wantRepresentors(t, e, pf, "VF 3: own3")
}

func TestPFWithNumberOfFunctionIsPreferred(t *testing.T) {
	e := on(netdevs("up p0 aa "+pf, "sys0 pf0vf4 aa "+pf, "sys1 pf1vf4 aa "+pf, "one pf3vf5 aa "+pf, "a pf2vf6 aa "+pf, "b pf3vf6 aa "+pf),
		port("dev0 pf0vf0"), port("dev1 pf1vf0"), port("only pf1vf1"), port("a pf1vf2"), port("b pf2vf2"), port("a pf0vf3"), port("b pf0vf3"))
	wantRepresentors(t, e, pf, "VF 0: dev0", "VF 1: only", "VF 2: several", "VF 3: several", "VF 4: sys0", "VF 5: one", "VF 6: several")
	_, _, err := e.Representor(pf, link.VF, 2)
	difftest.Says(t, err, "a and b")
	e = on(netdevs(), port("dev0 pf0vf0"), port("dev1 pf1vf0"))
	wantRepresentors(t, e, "0000:01:00.1", "VF 0: dev1")
}

// The names are those of kernel drivers, see portName, and some that none prints.
func TestPortNameIdentifiesRepresentor(t *testing.T) {
	const unclear = pf + ": find a representor: rep may represent a function of another host, because devlink does not list it"
	for names, want := range map[string]struct {
		represents bool
		vf, sf     string // representor of VF 7, of SF 7
	}{
		" p7 p7s7 l1p7 l1p7s0 n7 sby vf7 eth 4294967296":     {},
		"pf0vf7 pf3vf7 pf65535vf7 p0pf0vf7 p1pf0vf7 pf0vf07": {true, "rep", ""}, // a single candidate, so its PF number does not matter
		"pf0sf7 p0pf0sf7": {true, "", "rep"},
		"7 pf7 c1pf0 pf0s7 pf0vf70 pf0sf70 pf0vf7s0 pf0vfr7 p0if1pf0 p0if1pf0vf7":          {true, "", ""},
		"pf0vf pfvf7 pf0vf-7 pf0vf+7 pf0vf7vf7 pf65536vf7 pf0vf4294967303 xpf0vf7 pf0xvf7": {true, "", ""},
		"c1pf0vf7": {true, unclear, ""}, "c1pf0sf7": {true, "", unclear}, // without devlink, nothing shows whose controller it is
		"PF0VF7": {},
	} {
		for name := range strings.SplitSeq(names, " ") {
			sys := netdevs("up p0 aa "+pf, "rep - aa "+pf)
			sys["devices/"+pf+"/net/rep/phys_port_name"] = file(name + "\n")
			wantRepresentors(t, on(sys), pf, "VF 7: "+want.vf, "SF 7: "+want.sf)
			if link.Represents(name) != want.represents {
				t.Errorf("%q: %v", name, !want.represents)
			}
		}
	}
}

func TestInterfacesOfOtherSwitchesAreIgnored(t *testing.T) {
	wantRepresentors(t, on(netdevs("a0 p0 aa "+pf,
		"free0 pf0vf0 aa",             // no parent, same switch
		"free1 pf1vf1 aa",             // other PF on a card whose PFs share the ID
		"free2 pf0vf2 bb",             // other card
		"free3 pf0vf3 -",              // no switch
		"pci4 pf0vf4 aa 0000:01:00.1", // other PF by its parent
		"pci5 pf0vf5 bb "+pf,          // same device, but other switch
		"pci6 pf0vf6 - "+pf,           // same device, no switch
		"free7 pf0vf7 aa", "pci7 pf0vf7 aa "+pf,
	)), pf, "VF 0: free0", "VF 1:", "VF 2:", "VF 3:", "VF 4:", "VF 5:", "VF 6:", "VF 7: several")
	wantRepresentors(t, on(netdevs("up p0 - "+pf, "sys0 pf0vf0 - "+pf)), pf, "VF 0:")
	sfs := []string{"a - - " + pf, "b - - " + pf, "c - - " + pf, "d - - " + pf} // interfaces of SFs of ice
	wantRepresentors(t, on(netdevs(append(sfs, "up p0 aa "+pf, "z pf0vf0 aa "+pf)...)), pf, "VF 0: z")
	// The representors of octeontx2 are on another function with its own eswitch (marvell/octeontx2/nic/rep.c).
	wantRepresentors(t, on(netdevs("up - - "+pf, "r p1 aa 0000:01:1c.0", "r0 pf1vf1 aa 0000:01:1c.0")), pf, "VF 0:", "VF 1:")
}

// If a file or the list of ports cannot be read, the function may still have a representor.
func TestReadErrorIsNotMissingRepresentor(t *testing.T) {
	sys := netdevs("up p0 aa "+pf, "sys0 pf0vf0 aa "+pf, "sys1 pf0vf1 aa "+pf, "free3 pf0vf3 aa")
	for name, number := range map[string]int{
		"class/net/sys0/phys_port_name": 0, "class/net/sys0/phys_switch_id": 0, "bus/pci/devices/" + pf + "/net/sys0": 0, "class/net/free3/device": 3,
	} {
		e := on(broken(sys, name, syscall.EIO))
		if got, _, err := e.Representor(pf, link.VF, number); got != "" || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), pf) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		wantRepresentors(t, e, pf, "VF 1: sys1") // the interface in sysfs is still found
	}
	e := on(broken(sys, "bus/pci/devices/"+pf+"/net/sys0/phys_switch_id", syscall.EIO))
	if got, _, err := e.Representor(pf, link.VF, 0); got != "" || !errors.Is(err, syscall.EIO) {
		t.Errorf("the PF: %q, %v", got, err)
	}
	for _, gone := range []error{syscall.ENODEV, syscall.EOPNOTSUPP, syscall.EINVAL, fs.ErrNotExist} {
		wantRepresentors(t, on(broken(sys, "class/net/sys0/phys_port_name", gone)), pf, "VF 0:", "VF 1: sys1")
	}
	e = on(sys)
	e.Ports = func(string) ([]link.PortRecord, error) { return nil, syscall.EMSGSIZE }
	wantRepresentors(t, e, pf, "VF 1: sys1")
	if got, _, err := e.Representor(pf, link.VF, 2); got != "" || !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("%q, %v", got, err)
	}
	e.Ports = func(string) ([]link.PortRecord, error) { return nil, syscall.ENODEV }
	wantRepresentors(t, e, pf, "VF 2:")
	wantRepresentors(t, on(fstest.MapFS{}), pf, "VF 2:")
}
