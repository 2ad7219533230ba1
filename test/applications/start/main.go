// Start starts a program with the devices of its pod:
//
//	start dpdk-testpmd -l 2,3 -- --forward-mode=io
//
// and by echo it prints them as libvirt has them.
package main

import (
	"fmt"
	"html"
	"log"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/devinfo/podnet"
)

var arguments = map[string]func(podnet.Network) []string{"dpdk-testpmd": eal, "qemu-system-x86_64": qemu, "echo": libvirt, "ibv_rc_pingpong": verbs}

func main() {
	networks, err := podnet.Networks()
	if err != nil {
		log.Fatal(err)
	}
	args := os.Args[1:2:2]
	for _, n := range networks {
		args = append(args, arguments[args[0]](n)...)
	}
	if args[0] == "dpdk-testpmd" && !slices.Contains(args, "-a") {
		args = append(args, "--no-pci") // else it takes what it can get
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(syscall.Exec(path, append(args, os.Args[2:]...), os.Environ()))
}

// eal are the EAL's arguments for the device of a network; none if it has no use for it.
func eal(n podnet.Network) []string {
	switch d := n.Device.Device().(type) {
	case *devinfo.PCI:
		return []string{"-a", d.Address}
	case *devinfo.Memif:
		role := "client"
		if d.Role == "master" {
			role = "server"
			os.Remove(d.Path) // one that was killed has left it, and DPDK does not replace it
		}
		return []string{"--vdev=net_memif_" + n.Interface + ",role=" + role + ",socket=" + d.Path + ",socket-abstract=no"}
	case *devinfo.VhostUser:
		server := ""
		if d.Mode == "server" {
			server = ",server=1"
			os.Remove(d.Path)
		}
		return []string{"--vdev=net_virtio_user_" + n.Interface + ",path=" + d.Path + server}
	case *devinfo.VDPA:
		if d.Driver == "vhost" {
			return []string{"--vdev=net_virtio_user_" + n.Interface + ",path=" + d.Path}
		}
	}
	return nil
}

// qemu are QEMU's arguments for the device of a network; none if it has no use for it.
func qemu(n podnet.Network) []string {
	nic := "virtio-net-pci,netdev=" + n.Interface
	if n.MAC != "" {
		nic += ",mac=" + n.MAC
	}
	if n.MTU != 0 {
		nic += ",host_mtu=" + strconv.Itoa(n.MTU)
	}
	switch d := n.Device.Device().(type) {
	case *devinfo.PCI:
		return []string{"-device", "vfio-pci,host=" + d.Address}
	case *devinfo.VhostUser:
		socket := "socket,id=" + n.Interface + ",path=" + d.Path
		if d.Mode == "server" {
			socket += ",server=on"
		}
		return []string{"-chardev", socket, "-netdev", "vhost-user,id=" + n.Interface + ",chardev=" + n.Interface, "-device", nic}
	case *devinfo.VDPA:
		if d.Driver == "vhost" {
			return []string{"-netdev", "vhost-vdpa,id=" + n.Interface + ",vhostdev=" + d.Path, "-device", nic}
		}
	}
	return nil
}

// libvirt is the element of a domain for the device of a network; none if it has no use for it.
func libvirt(n podnet.Network) []string {
	const pciSource = "<source><address type='pci' domain='0x%04x' bus='0x%02x' slot='0x%02x' function='0x%x'/></source>"
	kind, source := "", ""
	switch d := n.Device.Device().(type) {
	case *devinfo.PCI:
		a, err := pci.Parse(d.Address)
		if err != nil {
			return nil
		}
		kind, source = "type='hostdev' managed='no'", fmt.Sprintf(pciSource, a.Domain, a.Bus, a.Device, a.Function)
	case *devinfo.VhostUser:
		kind = "type='vhostuser'"
		source = "<source type='unix' path='" + html.EscapeString(d.Path) + "' mode='" + d.Mode + "'/><model type='virtio'/>"
	case *devinfo.VDPA:
		kind, source = "type='vdpa'", "<source dev='"+html.EscapeString(d.Path)+"'/>"
	default:
		return nil
	}
	if n.MAC != "" {
		source = "<mac address='" + n.MAC + "'/>" + source
	}
	return []string{"<interface " + kind + ">" + source + "</interface>"}
}

// verbs are ibv_rc_pingpong's arguments for the RDMA device of a network; none if it has none.
func verbs(n podnet.Network) []string {
	d, ok := n.Device.Device().(*devinfo.PCI)
	if !ok || d.RDMADevice == "" {
		return nil
	}
	first, _, _ := strings.Cut(d.RDMADevice, ",")
	return []string{"-d", first}
}
