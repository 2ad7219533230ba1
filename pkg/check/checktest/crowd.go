// Package checktest makes nodes that are crowded, for benchmarks.
package checktest

import (
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/hosttxt/hosttxttest"
	"devinfo-cni.io/pkg/journal"
)

// Crowd records n attachments, one of each pod, as their ADD would, with their files. The
// first ones have the VFs of the host that [hosttxttest.ManyVFs] makes, the others memif
// sockets. None has an interface in the network namespace.
func Crowd(j *journal.Journal, infos, netns string, vfs, n int) error {
	for i := range n {
		e := &journal.Entry{
			Key: journal.Key{Network: "net", ContainerID: fmt.Sprintf("%064x", i), IfName: "net1"}, Netns: netns, Complete: true,
			Pod: fmt.Sprint("uid", i), Args: fmt.Sprintf("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod%d;K8S_POD_UID=uid%d", i, i),
			Dir: infos, File: fmt.Sprint("net-pod", i, "-net1.json"), Wrote: true,
		}
		info := &devinfo.Info{Type: "memif", Version: "1.1.0", Memif: &devinfo.Memif{Role: "slave", Path: "/run/memif.sock", Mode: "ethernet"}}
		if i < vfs {
			address := hosttxttest.VF(i)
			info = &devinfo.Info{Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{Address: address, PFAddress: "0000:3b:00.0", RDMADevice: fmt.Sprint("mlx5_", i+2)}}
			e.Asked.DeviceIDs = []config.NamedID{{Key: "deviceID", ID: address}}
			e.Leases = []journal.DeviceLease{
				{ID: "pci-" + address, Mode: journal.Exclusive}, {ID: fmt.Sprint("iommu-", 100+i), Mode: journal.Exclusive}, {ID: "pci-0000:3b:00.0", Mode: journal.Shared},
			}
			e.Device = journal.Identity{Type: "pci", ID: address}
		} else {
			e.Asked.Declared = info.Encode()
			e.Device = journal.Identity{Type: "memif", ID: info.Memif.Path}
		}
		e.Info = info.Encode()
		if err := store.Open(infos).Write(e.File, e.Info); err != nil {
			return err
		}
		if err := j.Record(e, nil); err != nil {
			return err
		}
		e.Unlock()
	}
	return nil
}
