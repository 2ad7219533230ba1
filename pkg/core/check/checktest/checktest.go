// Package checktest provides finders for captured hosts, and journals with made-up attachments.
package checktest

import (
	"cmp"
	"fmt"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// Finder returns a finder for a captured host and the interfaces in its pod.
func Finder(t testing.TB, host *capturefile.Host) *discovery.Finder {
	t.Helper()
	links, err := linkhost.New(host)
	difftest.Must(t, err)
	return &discovery.Finder{Sys: sysfs.New(host.Sys()), Interfaces: links, Eswitches: links}
}

// Record records an attachment in the journal, and writes its device-info file if e.File is set. By default the
// network is net-a, the interface is net1, and the boot is boot. Without e.Info the file describes the PCI device
// e.Device.
func Record(t testing.TB, node config.Node, boot string, e journal.Entry) journal.Key {
	t.Helper()
	e.Network, e.IfName = cmp.Or(e.Network, "net-a"), cmp.Or(e.IfName, "net1")
	e.Dir, e.Wrote = node.DeviceInfoDir, e.File != ""
	if e.File != "" {
		text := e.Info
		if text == nil {
			text = (&devinfo.Info{Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{Address: e.Device.ID}}).Encode()
		}
		difftest.Must(t, store.Open(e.Dir).Write(e.File, text))
	}
	difftest.Must(t, journal.Open(node.StateDir, cmp.Or(e.BootID, boot)).Put(&e, nil))
	e.Unlock()
	return e.Key
}

// Containers returns the container IDs of the recorded attachments.
func Containers(t testing.TB, node config.Node) (ids []string) {
	t.Helper()
	keys, err := journal.Open(node.StateDir, "").All()
	difftest.Must(t, err)
	for _, k := range keys {
		ids = append(ids, k.ContainerID)
	}
	return ids
}

// Crowd records n attachments, each of its own pod. The first vfs of them have the VFs of [capturetest.ManyVFs],
// the others have memif sockets. None has an interface in the network namespace.
func Crowd(t testing.TB, node config.Node, boot, netns string, vfs, n int) {
	t.Helper()
	for i := range n {
		e := journal.Entry{
			Key: journal.Key{Network: "net", ContainerID: fmt.Sprintf("%064x", i)}, Netns: netns, Complete: true,
			Pod: fmt.Sprint("uid", i), Args: fmt.Sprintf("K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod%d;K8S_POD_UID=uid%d", i, i),
			File: fmt.Sprint("net-pod", i, "-net1.json"),
		}
		info := &devinfo.Info{Type: "memif", Version: "1.1.0", Memif: &devinfo.Memif{Role: "slave", Path: "/run/memif.sock", Mode: "ethernet"}}
		if i < vfs {
			address := capturetest.VF(i)
			info = &devinfo.Info{Type: "pci", Version: "1.1.0", PCI: &devinfo.PCI{Address: address, PFAddress: "0000:3b:00.0", RDMADevice: fmt.Sprint("mlx5_", i+2)}}
			e.Requested.DeviceIDs = []config.NamedID{{Key: "deviceID", ID: address}}
			e.Leases = []journal.DeviceLease{
				{ID: "pci-" + address, Mode: journal.Exclusive}, {ID: fmt.Sprint("iommu-", 100+i), Mode: journal.Exclusive}, {ID: "pci-0000:3b:00.0", Mode: journal.Shared},
			}
			e.Device = journal.Identity{Type: "pci", ID: address}
		} else {
			e.Requested.Declared = info.Encode()
			e.Device = journal.Identity{Type: "memif", ID: info.Memif.Path}
		}
		e.Info = info.Encode()
		Record(t, node, boot, e)
	}
}
