package cdispec

import (
	"fmt"
	"slices"
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

// Variables are variables with what the device information says, DEVINFO_NET1_TYPE=pci and so on;
// none has the name of another interface's, as no suffix begins with a hexadecimal digit.
// inside gives the path in the container of a socket that is declared at a path; "" = the
// container does not have it. What is unknown has no variable, nor has what may not be one.
func Variables(ifName string, info *devinfo.Info, inside func(socket string) string) (list []string) {
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
		if isValue(value) {
			list = append(list, Variable(ifName)+"_"+names[n]+"="+value)
		}
	}
	return list
}

func isValue(s string) bool {
	const longest = 4096 // bytes, of a path; the kernel starts no program with a variable of 128 KiB
	return s != "" && len(s) <= longest && strings.IndexByte(s, 0) < 0
}

// RDMAVariable is the name of the variable that [RDMADevices] returns.
const RDMAVariable = variable + "RDMA_DEVICES"

// RDMADevices returns the variable DEVINFO_RDMA_DEVICES with the RDMA devices of several interfaces, each
// once, as device:port; "" = there are none. NCCL_IB_HCA and UCX_NET_DEVICES take that form. The port is
// always 1: only devices of the driver mlx4 have a second one.
func RDMADevices(infos []*devinfo.Info) string {
	var list []string
	for _, info := range infos {
		d, ok := info.Device().(*devinfo.PCI)
		if !ok || d.RDMADevice == "" {
			continue
		}
		for name := range strings.SplitSeq(d.RDMADevice, ",") {
			if port := name + ":1"; !slices.Contains(list, port) {
				list = append(list, port)
			}
		}
	}
	if value := strings.Join(list, ","); isValue(value) {
		return RDMAVariable + "=" + value
	}
	return ""
}
