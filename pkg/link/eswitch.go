package link

import (
	"fmt"
	"io/fs"
	"sync"

	"devinfo-cni.io/devinfo/pci"
	"github.com/vishvananda/netlink"
)

// Eswitch answers for the eswitches of a host, running or captured. It is the common part
// of Kernel and linkhost.Host; other packages use those.
type Eswitch struct {
	Sys fs.FS // the tree below /sys

	// Mode gives devlink's eswitch mode of the PCI device, or an error such as
	// ENODEV if devlink does not know the device.
	Mode func(pf string) (string, error)
	// Ports gives the devlink ports of the PCI device.
	Ports func(pf string) ([]*netlink.DevlinkPort, error)

	known func(pf string) (bool, error) // Switchdev, if Once made it; else nil
}

// Once answers alike, but reads the mode and the ports of each PF only once, and one at a time,
// for callers that look at many devices.
func (e Eswitch) Once() Eswitch {
	return Eswitch{Sys: e.Sys, Mode: e.Mode, Ports: once(e.Ports), known: once(e.Switchdev)}
}

func once[V any](ask func(pf string) (V, error)) func(pf string) (V, error) {
	var mu sync.Mutex
	known := map[string]func() (V, error){}
	return func(pf string) (V, error) {
		mu.Lock()
		defer mu.Unlock()
		if known[pf] == nil {
			known[pf] = sync.OnceValues(func() (V, error) { return ask(pf) })
		}
		return known[pf]()
	}
}

// Switchdev reports whether the eswitch of the PF at that PCI address is in switchdev mode.
// Devlink knows; where it gives no mode, because the driver or the kernel has none or we
// lack CAP_NET_ADMIN, a phys_switch_id on one of the PF's interfaces decides.
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
		return false, fmt.Errorf("%s: ask devlink for the eswitch mode: %w", pf, err)
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

// switchID is the phys_switch_id of the PF; "" if it has none. It looks at four
// interfaces of the PF and no more. In switchdev mode each one has the id, be there
// a thousand representors; in legacy mode there are one or two interfaces, and
// reading it fails with EOPNOTSUPP. That tells the mode only where devlink does not:
// some drivers have an id in legacy mode, too (bnxt_en).
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
	entries, _ := list.ReadDir(4) // an empty directory is an error, io.EOF
	for _, entry := range entries {
		if id, err := e.attribute(net + "/" + entry.Name() + "/phys_switch_id"); err != nil || id != "" {
			return id, err
		}
	}
	return "", nil
}
