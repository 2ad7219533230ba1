package link

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/devinfo/pci"
	"github.com/k8snetworkplumbingwg/sriovnet"
	"github.com/vishvananda/netlink"
)

// Eswitch answers for the eswitches of a host, running or captured. It is
// Kernel's and linkhost.Host's common half; others use those.
type Eswitch struct {
	Sys fs.FS // the tree below /sys

	// Mode gives devlink's eswitch mode of the PCI device, or an error such as
	// ENODEV if devlink does not know the device.
	Mode func(pf string) (string, error)
	// Ports gives the devlink ports of the PCI device.
	Ports func(pf string) ([]*netlink.DevlinkPort, error)
}

// NewEswitch answers for this machine's eswitches. It takes the tree below /sys and
// what devlink calls a PF: that is pci/ADDRESS everywhere but in tests against a
// simulated switch.
func NewEswitch(sys fs.FS, handle func(pf string) Handle) Eswitch {
	return Eswitch{
		Sys:   sys,
		Mode:  func(pf string) (string, error) { return handle(pf).EswitchMode() },
		Ports: func(pf string) ([]*netlink.DevlinkPort, error) { return handle(pf).Ports() },
	}
}

// Switchdev says whether the PF of that PCI address has its eswitch in
// switchdev mode. Devlink knows; where it gives no mode, because the driver or
// the kernel has none or we lack CAP_NET_ADMIN, a phys_switch_id on one of the
// PF's interfaces tells.
func (e Eswitch) Switchdev(pf string) (bool, error) {
	address, err := pci.Parse(pf)
	if err != nil {
		return false, err
	}
	mode, err := e.Mode(address.String())
	if err != nil && !absent(err) {
		return false, fmt.Errorf("%s: ask devlink for the eswitch mode: %w", pf, err)
	}
	switch mode {
	case "switchdev":
		return true, nil
	case "legacy":
		return false, nil
	}
	switchdev, err := e.hasSwitchID(address.String())
	if err != nil {
		return false, fmt.Errorf("%s: read phys_switch_id: %w", pf, err)
	}
	return switchdev, nil
}

// hasSwitchID looks at four interfaces of the PF and no more. In switchdev mode
// each one has the id, be there a thousand representors; in legacy mode there
// are one or two interfaces, and reading it fails with EOPNOTSUPP. Only where
// devlink gives no mode: some drivers have an id in legacy mode, too (bnxt_en).
func (e Eswitch) hasSwitchID(pf string) (bool, error) {
	net := "bus/pci/devices/" + pf + "/net"
	dir, err := e.Sys.Open(net)
	if absent(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer dir.Close()
	list, ok := dir.(fs.ReadDirFile)
	if !ok {
		return false, fmt.Errorf("%s: not a directory", net)
	}
	entries, _ := list.ReadDir(4) // an empty directory is an error, io.EOF
	for _, entry := range entries {
		id, err := fs.ReadFile(e.Sys, net+"/"+entry.Name()+"/phys_switch_id")
		if err != nil && !absent(err) {
			return false, err
		}
		if len(bytes.TrimSpace(id)) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// Representor names the interface that stands for VF or SF number of the PF of
// that PCI address: among the PF's devlink ports, or else by the phys_port_name
// of the PF's interfaces. Ports of an external controller (the server that a
// DPU sits in) are passed over. Ask Switchdev first.
//
// It is not ok if there is none; two candidates are an error, which wraps
// sriovnet.ErrMultipleRepresentorsFound. A PF in a PCI domain of more than four
// digits is refused with errors.ErrUnsupported, since sriovnet takes its
// address for an interface's name.
func (e Eswitch) Representor(pf string, flavour Flavour, number int) (name string, ok bool, err error) {
	address, err := pci.Parse(pf)
	if err != nil {
		return "", false, err
	}
	if address.WideDomain() {
		return "", false, fmt.Errorf("%s: representors behind a wide PCI domain: %w", pf, errors.ErrUnsupported)
	}
	name, err = e.representor(address.String(), flavour, number)
	switch {
	case err == nil:
		return name, true, nil
	case errors.Is(err, sriovnet.ErrRepresentorNotFound), absent(err):
		return "", false, nil
	}
	return "", false, fmt.Errorf("%s: find a representor: %w", pf, err)
}
