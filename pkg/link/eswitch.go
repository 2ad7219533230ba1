package link

import (
	"fmt"
	"io/fs"
	"sync"

	"devinfo-cni.io/devinfo/pci"
	"github.com/vishvananda/netlink"
)

// Eswitch reads the eswitches of a running or captured host. Kernel and
// linkhost.Kernel embed it.
type Eswitch struct {
	Sys fs.FS // the tree below /sys

	// Mode returns devlink's eswitch mode of a PCI device. It returns an error such as ENODEV if devlink does not
	// know the device.
	Mode func(pf string) (string, error)
	// Ports returns the devlink ports of a PCI device.
	Ports func(pf string) ([]*netlink.DevlinkPort, error)

	known func(pf string) (bool, error) // cached Switchdev, set by Once; else nil
}

// Once returns an Eswitch that reads the mode and the ports of each PF only once, for callers that read many
// devices.
func (e Eswitch) Once() Eswitch {
	return Eswitch{Sys: e.Sys, Mode: e.Mode, Ports: once(e.Ports), known: once(e.Switchdev)}
}

func once[V any](read func(pf string) (V, error)) func(pf string) (V, error) {
	var mu sync.Mutex
	known := map[string]func() (V, error){}
	return func(pf string) (V, error) {
		mu.Lock()
		defer mu.Unlock()
		if known[pf] == nil {
			known[pf] = sync.OnceValues(func() (V, error) { return read(pf) })
		}
		return known[pf]()
	}
}

// Switchdev reports whether the eswitch of the PF at a PCI address is in switchdev mode. If devlink returns no mode,
// because the driver or the kernel does not support it or CAP_NET_ADMIN is missing, it depends on whether an
// interface of the PF has a phys_switch_id.
func (e Eswitch) Switchdev(pf string) (bool, error) {
	if e.known != nil {
		return e.known(pf)
	}
	address, err := pci.Parse(pf)
	if err != nil {
		return false, err
	}
	mode, err := e.Mode(address.String())
	if err != nil && !absent(err) {
		return false, fmt.Errorf("%s: read the eswitch mode from devlink: %w", pf, err)
	}
	switch mode {
	case "switchdev":
		return true, nil
	case "legacy":
		return false, nil
	}
	id, err := e.switchID(address.String())
	if err != nil {
		return false, fmt.Errorf("%s: read phys_switch_id: %w", pf, err)
	}
	return id != "", nil
}

// switchID returns the phys_switch_id of the PF, or "". It reads at most four interfaces of the PF. In switchdev
// mode each interface has the ID, even with a thousand representors. In legacy mode there are one or two interfaces,
// and reading the ID fails with EOPNOTSUPP. Some drivers have an ID in legacy mode too (bnxt_en), so prefer
// devlink's mode.
func (e Eswitch) switchID(pf string) (string, error) {
	net := "bus/pci/devices/" + pf + "/net"
	dir, err := e.Sys.Open(net)
	if absent(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer dir.Close()
	list, ok := dir.(fs.ReadDirFile)
	if !ok {
		return "", fmt.Errorf("%s: not a directory", net)
	}
	entries, _ := list.ReadDir(4) // an empty directory returns io.EOF
	for _, entry := range entries {
		if id, err := e.attribute(net + "/" + entry.Name() + "/phys_switch_id"); err != nil || id != "" {
			return id, err
		}
	}
	return "", nil
}
