package cdispec

import (
	"fmt"
	"strings"

	"devinfo-cni.io/devinfo"
)

const variable = "DEVINFO_"

// Variable is the environment variable that names the device-info file of an
// interface: DEVINFO_ and the name in capitals. Anything but a lower-case letter or a
// digit is written as _ and two hexadecimal digits, so that the variables of "net-1",
// "net_1" and "NET1" differ: DEVINFO_NET_2D1, DEVINFO_NET_5F1, DEVINFO__4E_45_541.
func Variable(ifName string) string {
	name := []byte(variable)
	for _, c := range []byte(ifName) {
		switch {
		case c >= 'a' && c <= 'z':
			name = append(name, c-'a'+'A')
		case c >= '0' && c <= '9':
			name = append(name, c)
		default:
			name = fmt.Appendf(name, "_%02X", c)
		}
	}
	return string(name)
}

// Facts are variables with what the device information says, DEVINFO_NET1_TYPE=pci and so on;
// none has the name of another interface's, as no suffix begins with a hexadecimal digit.
// inside gives the path in the container of a socket that is declared at a path; "" = the
// container does not have it. What is unknown has no variable, nor has what may not be one.
func Facts(ifName string, info *devinfo.Info, inside func(socket string) string) (list []string) {
	const longest = 4096 // bytes, of a path; the kernel starts no program with a variable of 128 KiB
	var pci, rdma, vdpa, socket, role, mode string
	switch d := info.Device().(type) {
	case nil:
		return nil
	case *devinfo.PCI:
		pci, rdma = d.Address, d.RDMADevice
	case *devinfo.VDPA:
		pci, vdpa = d.Address, d.Path
	case *devinfo.VhostUser:
		socket, mode = d.Path, d.Mode
	case *devinfo.Memif:
		socket, role, mode = d.Path, d.Role, d.Mode
	}
	if socket != "" {
		socket = inside(socket)
	}
	names := strings.Fields("TYPE PCI_ADDRESS RDMA_DEVICE VDPA_PATH SOCKET ROLE MODE")
	for n, value := range []string{string(info.Type), pci, rdma, vdpa, socket, role, mode} {
		if value != "" && len(value) <= longest && strings.IndexByte(value, 0) < 0 {
			list = append(list, Variable(ifName)+"_"+names[n]+"="+value)
		}
	}
	return list
}
