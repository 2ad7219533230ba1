package sysfs

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo/pci"
)

// Function is a PCI function, /sys/bus/pci/devices/<address>.
type Function struct {
	Address pci.Address
	Driver  string       // driver -> …/<name>; "" = unbound
	PF      *pci.Address // physfn -> ../<PF>; nil = not a VF, or a VF whose PF is not visible (in a VM)

	dir string
}

func (fn Function) at() string { return fn.dir }

// PCI returns the function at an address. ok is false if it does not exist.
func (f *FS) PCI(a pci.Address) (fn Function, ok bool, err error) {
	d := f.device("pci", a.String())
	if d.gone {
		return fn, false, d.err
	}
	fn = Function{Address: a, Driver: d.link("driver"), dir: d.at}
	if physfn := d.link("physfn"); physfn != "" {
		pf, err := pci.Parse(physfn)
		if err != nil {
			return fn, false, fmt.Errorf("%s: physfn: %w", a, err)
		}
		fn.PF = &pf
	}
	return fn, d.err == nil, d.err
}

// Functions returns the PCI functions of class network controller, by address.
func (f *FS) Functions() ([]Function, error) {
	const networkClass = "0x02" // 02xxxx (PCI Code and ID Assignment Specification 1.3)
	return each(f, "bus/pci/devices", func(name string) (Function, bool, error) {
		a, err := pci.Parse(name)
		if err != nil {
			return Function{}, false, nil // the entry is not a PCI function
		}
		d := f.in("bus/pci/devices/" + name)
		if !strings.HasPrefix(d.text("class"), networkClass) {
			return Function{}, false, d.err
		}
		return f.PCI(a)
	})
}

// VFs returns how many VFs a PF has, and how many it can have. ok is false if the function is not a PF.
func (f *FS) VFs(fn Function) (number, most int, ok bool, err error) {
	d := f.in(fn.dir)
	if number, ok = d.number("sriov_numvfs"); ok {
		most, _ = d.number("sriov_totalvfs")
	}
	return number, most, ok && d.err == nil, d.err
}

// VFIndex returns the number N of a VF: its PF's link virtfnN leads to it. VFIndex computes N from sriov_offset
// and sriov_stride (PCIe SR-IOV 3.3.9, 3.3.10) and verifies that one link, because listing the links takes
// milliseconds with 1024 VFs.
func (f *FS) VFIndex(pf, vf pci.Address) (n int, ok bool, err error) {
	d := f.device("pci", pf.String())
	offset, _ := d.number("sriov_offset")
	stride, _ := d.number("sriov_stride")
	n = (vf.RoutingID() - pf.RoutingID() - offset) / max(stride, 1)
	if d.link(fmt.Sprintf("virtfn%d", n)) != vf.String() {
		return 0, false, d.err
	}
	return n, true, nil
}

// NUMANode returns the NUMA node nearest to a function, from numa_node. ok is false if the function does not
// exist or has no NUMA node (-1).
func (f *FS) NUMANode(a pci.Address) (node int, ok bool, err error) {
	d := f.device("pci", a.String())
	if node, ok = d.number("numa_node"); !ok || node < 0 {
		return 0, false, d.err
	}
	return node, true, nil
}

// IDs returns the vendor and device IDs of a function as the kernel prints them, such as "0x15b3". "" means none.
func (f *FS) IDs(a pci.Address) (vendor, device string, err error) {
	d := f.device("pci", a.String())
	return d.text("vendor"), d.text("device"), d.err
}

// ByNumber compares names. It compares numbers at their end by value, so mlx5_9 is before mlx5_10.
func ByNumber(a, b string) int {
	// Numbers in kernel names have no leading zeros, so the longer one is greater.
	return cmp.Or(cmp.Compare(prefix(a), prefix(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func prefix(name string) string {
	end := len(name)
	for end > 0 && '0' <= name[end-1] && name[end-1] <= '9' {
		end--
	}
	return name[:end]
}

func above(dir string) *pci.Address {
	for dir = path.Dir(dir); dir != "." && dir != "/"; dir = path.Dir(dir) {
		if a, err := pci.Parse(path.Base(dir)); err == nil {
			return &a
		}
	}
	return nil
}

// Auxiliary is a device on the auxiliary bus, /sys/bus/auxiliary/devices/<name>. It is either a sub-function
// (SF), such as mlx5_core.sf.4, or a device that the driver of a PCI function created for other drivers, such as
// mlx5_core.vnet.0, ice.roce.1, idpf.8086.rdma.core.0 or pds_core.vDPA.1.
type Auxiliary struct {
	Name     string
	SFNumber *int         // sfnum; nil = not an SF, or an SF of ice, which has no sfnum
	PCI      *pci.Address // nearest PCI function above, possibly a VF

	dir string
}

func (a Auxiliary) at() string { return a.dir }

// Auxiliary returns the auxiliary device with the given name. ok is false if it does not exist.
func (f *FS) Auxiliary(name string) (aux Auxiliary, ok bool, err error) {
	d := f.device("auxiliary", name)
	if d.gone {
		return aux, false, d.err
	}
	aux = Auxiliary{Name: name, PCI: above(d.at), dir: d.at}
	if n, isSF := d.number("sfnum"); isSF {
		aux.SFNumber = &n
	}
	return aux, d.err == nil, d.err
}

// Auxiliaries returns all devices on the auxiliary bus, sorted by name as in [ByNumber].
func (f *FS) Auxiliaries() ([]Auxiliary, error) { return each(f, "bus/auxiliary/devices", f.Auxiliary) }

// IsSF reports whether the device is an SF. SFs of mlx5 have sfnum
// (drivers/net/ethernet/mellanox/mlx5/core/sf/dev/dev.c). SFs of ice only have the name, <driver>.sf.<id>
// (drivers/net/ethernet/intel/ice/ice_sf_eth.c).
func (a Auxiliary) IsSF() bool {
	return a.SFNumber != nil || path.Ext(strings.TrimSuffix(a.Name, path.Ext(a.Name))) == ".sf"
}

// HasSFs reports whether a function carries SFs. It looks at each auxiliary device of the node.
func (f *FS) HasSFs(fn Function) (bool, error) {
	list, err := f.Auxiliaries()
	return slices.ContainsFunc(list, func(a Auxiliary) bool { return path.Dir(a.dir) == fn.dir && a.IsSF() }), err
}
