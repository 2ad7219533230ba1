package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
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
			t.add(row{r.Metric, r.Measured / median(times[0]), "x 1 VF", 1.1, 1.0})
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
