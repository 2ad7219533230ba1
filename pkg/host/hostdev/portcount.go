package hostdev

import (
	"errors"
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// PortCount is the number of network ports of a PCI function, as far as it is known. The ports of a function share its
// RDMA devices and device nodes, so only a function with at most one port can belong to one pod alone.
type PortCount int

const (
	// PortsUnknown means that other ports may exist, in network namespaces that this one does not show.
	PortsUnknown PortCount = iota
	// AtMostOnePort means that there is no other port in any network namespace.
	AtMostOnePort
	// SeveralPorts means that there are several ports, or an interface that looks like another port.
	SeveralPorts
)

// onePort are the drivers whose probe function registers one network interface for a PCI function, apart from
// representors. Drivers with one for each port of a function are not in the list: mlx4_core (mlx4/en_main.c), mthca and
// qib (InfiniBand), nfp (nfp_net_main.c), cxgb4, cxgb4vf and older ones of Chelsio (cxgb4_main.c, for_each_port), mana
// (mana_en.c, mana_probe), idpf (idpf_lib.c, a vport each), liquidio, funeth and sky2.
var onePort = []string{
	"atlantic", "be2net", "bnx2", "bnx2x", "bnxt_en", "e1000", "e1000e", "ena", "enic", "fbnic", "fm10k", "gve", "hinic", "hinic3", "hns3",
	"i40e", "iavf", drvICE, "igb", "igbvf", "igc", "ionic", "ixgbe", "ixgbevf", "mlx5_core", "nfp_netvf", "ngbe", "octeon_ep", "octeon_ep_vf",
	"qede", "qlcnic", "r8169", "rvu_nicpf", "rvu_nicvf", "sfc", "sfc_ef100", "tg3", "txgbe", "vmxnet3",
}

// drvICE registers the interface of an SF below the PCI function too (drivers/net/ethernet/intel/ice/ice_sf_eth.c,
// ice_sf_cfg_netdev), without dev_port and phys_port_name.
const drvICE = "ice"

// MayBeOfSF reports whether an interface below a PCI function may be that of an SF on it.
func MayBeOfSF(fn sysfs.Function, i *link.Interface) bool {
	return fn.Driver == drvICE && i.PortName == ""
}

// CountPorts returns the number of ports of a PCI function. Interfaces prove that there are several, but never that
// there are not: the list of the kernel is cut by network namespace, and that of [sysfs.FS.Ports] by size. The driver
// proves one port, or else the number of ports of the RDMA device.
//
// own is an interface of the function, such as one that is already in a pod; nil = none.
func CountPorts(sys *sysfs.FS, fn sysfs.Function, own *link.Interface) (PortCount, error) {
	if fn.Driver == VirtioNIC { // one virtio device, with one interface
		return AtMostOnePort, nil
	}
	ports, err := sys.Ports("pci", fn.Address.String(), sysfs.FewPorts)
	if err != nil {
		return PortsUnknown, fmt.Errorf("the PCI function %s: list its network interfaces: %w", fn.Address, err)
	}
	ports = slices.DeleteFunc(ports, func(p sysfs.Port) bool { return link.Represents(p.PortName) })
	if severalOf(ports, own) {
		return SeveralPorts, nil
	}
	if slices.Contains(onePort, fn.Driver) {
		if fn.Driver != drvICE {
			return AtMostOnePort, nil
		}
		several, err := sys.HasSFs(fn)
		return map[bool]PortCount{true: SeveralPorts, false: AtMostOnePort}[several], err
	}
	if own == nil {
		if has, err := sys.HasPorts("pci", fn.Address.String()); !has || err != nil {
			return AtMostOnePort, err
		}
	}
	switch number, all, err := sys.RDMAPorts(fn); {
	case number > 1:
		return SeveralPorts, nil
	case number == 1 && all && err == nil:
		return AtMostOnePort, nil
	}
	return PortsUnknown, nil
}

// Carries returns which other devices would lose their parent or their driver if a PCI function were unbound, also those
// that may be in another network namespace; "" = none.
func Carries(sys *sysfs.FS, fn sysfs.Function) (string, error) {
	vfs, _, _, err := sys.VFs(fn)
	sfs, sfErr := sys.HasSFs(fn)
	vdpas, vdpaErr := sys.VDPAs()
	ports, portErr := CountPorts(sys, fn, nil)
	on := slices.ContainsFunc(vdpas, func(v sysfs.VDPA) bool { return v.PCI != nil && *v.PCI == fn.Address })
	switch err := errors.Join(err, sfErr, vdpaErr, portErr); {
	case err != nil:
		return "", err
	case vfs > 0 || sfs || on:
		return "it has VFs, SFs or vDPA devices on it, which would lose their parent", nil
	case ports == SeveralPorts:
		return "it has several ports, which would all lose their driver", nil
	case ports == PortsUnknown:
		return "it may have another port, in another network namespace, which would lose its driver", nil
	}
	return "", nil
}

// severalOf reports whether the interfaces of a function, and its own one, are different ports. An interface whose port
// is not known counts as another port. Two with the same numbers are the same port, such as an IPoIB interface and its
// child.
func severalOf(ports []sysfs.Port, own *link.Interface) bool {
	if own == nil {
		return slices.ContainsFunc(ports, func(p sysfs.Port) bool { return differ(p, ports[0]) })
	}
	self := slices.IndexFunc(ports, func(p sysfs.Port) bool { return p.Name == own.Name && p.Index == own.Index })
	return slices.ContainsFunc(ports, func(p sysfs.Port) bool {
		if self >= 0 {
			return differ(p, ports[self])
		}
		return p.PortName == "" || p.PortName != own.PortName
	})
}

func differ(a, b sysfs.Port) bool { return a.DevPort != b.DevPort || a.PortName != b.PortName }
