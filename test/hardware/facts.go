package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/k8snetworkplumbingwg/sriovnet"

	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/sysfs"
)

// expected returns the device information of a function that the kernel's files give to someone who reads them without
// devinfo's code. For a vDPA device, name is its name.
func expected(t *target, vdpa string) (map[string]any, error) {
	dir := "/sys/bus/pci/devices/" + t.PCI
	keys := map[string]any{"pci-address": t.PCI}
	pf, err := os.Readlink(dir + "/physfn")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if pf != "" {
		keys["pf-pci-address"] = filepath.Base(pf)
	}
	if representor, err := representorOf(t); err != nil {
		return nil, err
	} else if representor != "" {
		keys["representor-device"] = representor
	}
	kind := "pci"
	if vdpa != "" {
		kind = "vdpa"
		if err := vdpaKeys(vdpa, keys); err != nil {
			return nil, err
		}
	} else if names := rdmaOf(dir); names != nil {
		keys["rdma-device"] = strings.Join(names, ",")
	}
	return map[string]any{"type": kind, "version": "1.1.0", kind: keys}, nil
}

// rdmaOf returns the RDMA devices of a function, without those in software, which have the attribute parent (rxe, siw).
func rdmaOf(dir string) (names []string) {
	for _, name := range below(dir + "/infiniband/*") {
		if _, err := os.Stat(dir + "/infiniband/" + name + "/parent"); err != nil {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, sysfs.ByNumber)
	return names
}

// representorOf asks sriovnet, as OVN-Kubernetes and ovs-cni do.
func representorOf(t *target) (string, error) {
	if t.Parent == nil || t.Number == nil {
		return "", nil
	}
	modes, err := listing.Eswitches()
	if err != nil || modes["pci/"+t.Parent.PCI].Mode != "switchdev" {
		return "", err
	}
	name, err := sriovnet.GetVfRepresentor(t.Parent.PCI, *t.Number)
	if err != nil {
		return "", fmt.Errorf("sriovnet finds no representor: %w", err)
	}
	return name, nil
}

func vdpaKeys(name string, keys map[string]any) error {
	dir := "/sys/bus/vdpa/devices/" + name
	driver, err := os.Readlink(dir + "/driver")
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	keys["parent-device"], keys["driver"] = name, strings.TrimSuffix(filepath.Base(driver), "_vdpa")
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for _, at := range []string{real, filepath.Dir(real)} {
		for _, node := range below(at + "/vhost-vdpa-*") {
			keys["path"] = "/dev/" + node
		}
		for _, virtio := range below(at + "/virtio[0-9]*") {
			keys["path"] = "/sys/bus/virtio/devices/" + virtio
		}
		if keys["path"] != nil {
			return nil
		}
	}
	return fmt.Errorf("%s: neither a vhost node nor a virtio device is below %s", name, real)
}

// differ returns an error if two values are not the same JSON.
func differ(what string, got, want any) error {
	g, err1 := json.Marshal(got)
	w, err2 := json.Marshal(want)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if string(g) != string(w) {
		return fmt.Errorf("%s: expected %s, but it is %s", what, w, g)
	}
	return nil
}
