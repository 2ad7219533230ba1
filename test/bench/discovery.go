package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing/fstest"
	"time"

	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/undertest"
)

// discoveries measures the discovery of a PF's last VF in legacy mode, for several numbers of VFs.
func discoveries(t *table) error {
	counts := []int{1, 64, 256, 1024}
	searches := make([]func() error, len(counts))
	for n, vfs := range counts {
		host := capturetest.ManyVFs(vfs)
		dir := fmt.Sprint(own, "/vfs-", vfs)
		if err := errors.Join(os.RemoveAll(dir), undertest.Unpack(host, dir)); err != nil {
			return err
		}
		sys, err := sysfs.Open(dir)
		if err != nil {
			return err
		}
		links, err := linkhost.New(host)
		if err != nil {
			return err
		}
		finder := discovery.Finder{Sys: sys, Interfaces: links, Eswitches: links}
		target := discovery.Target{DeviceIDs: []config.NamedID{{Key: "deviceID", ID: capturetest.VF(vfs - 1)}}}
		searches[n] = func() error { return search(finder, target) }
	}
	times := make([][]float64, len(counts))
	for range 2000 {
		for n, search := range searches {
			begin := time.Now()
			if err := search(); err != nil {
				return err
			}
			times[n] = append(times[n], float64(time.Since(begin))/1e3)
		}
	}
	for n, vfs := range counts {
		r := row{Metric: fmt.Sprintf("discovery, %d VFs", vfs), Measured: median(times[n]), Unit: "µs"}
		if n == len(counts)-1 {
			t.add(row{r.Metric, r.Measured / median(times[0]), "x 1 VF", 1.1})
		}
		t.add(r)
	}
	return nil
}

func search(finder discovery.Finder, target discovery.Target) error {
	device, err := finder.Find(target)
	if err != nil {
		return err
	}
	if device.Info == nil || device.Info.PCI == nil || device.Info.PCI.PFAddress == "" || device.Info.PCI.RDMADevice == "" || len(device.Warnings) > 0 {
		return fmt.Errorf("%s: incomplete: %+v", target.DeviceIDs[0].ID, device)
	}
	return nil
}

// switchdev measures the search for the representor of the last of 1,024 VFs in a dump like mlx5's. It starts with
// the kernel's answers. It fails if more than this one dump is requested or sysfs is searched.
func switchdev(t *table) error {
	const pf, vfs = "0000:03:00.0", 1024
	var answers [][]byte
	for n := range vfs {
		answers = append(answers, port(pf, n))
	}
	dumps := 0
	e := link.Eswitch{
		Sys:  untouched{},
		Mode: func(string) (string, error) { return "switchdev", nil },
		Ports: func(pf string) ([]link.PortRecord, error) {
			dumps++
			return link.Handle{Bus: "pci", Device: pf}.ParsePorts(answers)
		},
	}
	var times []float64
	for range *rounds {
		begin := time.Now()
		name, _, err := e.Representor(pf, link.VF, vfs-1)
		times = append(times, float64(time.Since(begin))/1e6)
		if err != nil || name != fmt.Sprint("rep", vfs-1) {
			return fmt.Errorf("representor %q, %w", name, err)
		}
	}
	if dumps != *rounds {
		return fmt.Errorf("%d dumps of devlink ports in %d rounds", dumps, *rounds)
	}
	t.add(row{"switchdev, representor among 1,024", median(times), "ms", 5})
	return nil
}

// port encodes a DEVLINK_CMD_PORT_NEW (include/uapi/linux/devlink.h).
func port(pf string, vf int) []byte {
	message := (&nl.Genlmsg{Command: nl.DEVLINK_CMD_PORT_NEW, Version: nl.GENL_DEVLINK_VERSION}).Serialize()
	for _, a := range []*nl.RtAttr{
		nl.NewRtAttr(nl.DEVLINK_ATTR_BUS_NAME, nl.ZeroTerminated("pci")),
		nl.NewRtAttr(nl.DEVLINK_ATTR_DEV_NAME, nl.ZeroTerminated(pf)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_INDEX, nl.Uint32Attr(uint32(vf+1))),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_TYPE, nl.Uint16Attr(nl.DEVLINK_PORT_TYPE_ETH)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_NETDEV_IFINDEX, nl.Uint32Attr(uint32(vf+100))),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_NETDEV_NAME, nl.ZeroTerminated(fmt.Sprint("rep", vf))),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_FLAVOUR, nl.Uint16Attr(nl.DEVLINK_PORT_FLAVOUR_PCI_VF)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_CONTROLLER_NUMBER, nl.Uint32Attr(0)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_PF_NUMBER, nl.Uint16Attr(0)),
		nl.NewRtAttr(nl.DEVLINK_ATTR_PORT_PCI_VF_NUMBER, nl.Uint16Attr(uint16(vf))),
	} {
		message = append(message, a.Serialize()...)
	}
	return message
}

// untouched is a sysfs that fails when it is read.
type untouched struct{}

func (untouched) Open(name string) (fs.File, error) {
	return fstest.MapFS{}.Open(name)
}

func (untouched) ReadDir(name string) ([]fs.DirEntry, error) {
	return nil, errors.New(name + " is listed")
}
