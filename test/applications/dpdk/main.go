// Dpdk starts an application of DPDK with the devices of its pod:
//
//	dpdk dpdk-testpmd -l 2,3 -- --forward-mode=io
package main

import (
	"log"
	"os"
	"os/exec"
	"slices"
	"syscall"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/podnet"
)

func main() {
	networks, err := podnet.Networks()
	if err != nil {
		log.Fatal(err)
	}
	args := os.Args[1:2:2]
	for _, n := range networks {
		args = append(args, eal(n)...)
	}
	if !slices.Contains(args, "-a") {
		args = append(args, "--no-pci") // else it takes what it can get
	}
	path, err := exec.LookPath(os.Args[1])
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
