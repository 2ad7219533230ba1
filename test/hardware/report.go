package main

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/store"
)

// trial is the part of a report that is not in every capture. capture.Source.Facts takes it.
type trial struct {
	Date      string
	Kernel    string
	Build     build.Info
	Functions []tried
	Results   []result
}

type tried struct {
	Function, Is, Driver, Firmware string

	// Found is the device information that the kernel's files give, by deviceID. A test compares it with what devinfo finds in
	// the capture.
	Found map[string]any
}

// report writes a scrubbed capture of the node with the results. The file is a fixture: a test reads it as it is.
func (n *node) report(path string, targets []*target, results []result) error {
	_, release := capture.Machine()
	t := trial{Date: time.Now().UTC().Format(time.DateOnly), Kernel: release, Build: build.Read(), Results: results}
	names := map[string]bool{}
	var products []string
	for _, target := range targets {
		t.Functions = append(t.Functions, target.tried())
		if !names[target.product] {
			names[target.product] = true
			products = append(products, target.product)
		}
	}
	vfs, err := settings.VFs()
	if err != nil {
		return err
	}
	source := capture.Source{
		Name: "host", Title: "devinfo-try on " + strings.Join(products, ", ") + ", Linux " + release,
		Sys: n.sys.Files(), Parts: capture.KernelParts, Scrub: true, Secrets: capture.Secrets("/sys"),
		State: capture.State{BootID: n.bootID, Time: time.Now().UTC(), Settings: n.config, Build: build.Read()},
		Facts: map[string]any{"live": &doctor.Live{VFs: vfs}, "trial": t},
	}
	text, _, err := capture.Take(source)
	if err != nil {
		return err
	}
	file, err := store.Replace(filepath.Dir(path), path, func(temp *os.File) error {
		_, err := temp.Write(text)
		return err
	})
	if err != nil {
		return err
	}
	return file.Close()
}

// tried describes a target in the report. What cannot be read is missing.
func (t *target) tried() tried {
	is := tried{Function: t.PCI, Is: t.describe(), Driver: t.Driver, Found: map[string]any{}}
	driver, firmware := versions(t.IfName)
	if driver != "" {
		is.Driver = driver
	}
	if is.Firmware = firmware; t.Parent != nil { // many VFs do not tell
		_, ofPF := versions(t.Parent.IfName)
		is.Firmware = cmp.Or(ofPF, firmware)
	}
	for _, name := range t.vdpa {
		if info, err := expected(t, name); err == nil {
			is.Found[name] = info
		}
	}
	if info, err := expected(t, ""); err == nil && t.vdpa == nil {
		is.Found[t.PCI] = info
	}
	return is
}

// versions returns those of an interface's driver, "igbvf 6.12.1", and of its firmware. "" = unknown
func versions(ifName string) (driver, firmware string) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", ""
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, ifName)
	if err != nil {
		return "", ""
	}
	return unix.ByteSliceToString(info.Driver[:]) + " " + unix.ByteSliceToString(info.Version[:]), unix.ByteSliceToString(info.Fw_version[:])
}
