package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/ctl/doctor"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/store"
)

// trial is the part of a report that is not in every capture. capture.Source.Trial takes it.
type trial struct {
	Date      string
	Kernel    string
	Build     build.Info
	Functions []tried
	Results   []result
}

type tried struct{ Function, Is, Firmware string }

// report writes a scrubbed capture of the node with the results. The file is a fixture: a test reads it as it is.
func (n *node) report(path string, targets []*target, results []result) error {
	_, release := capture.Machine()
	t := trial{Date: time.Now().UTC().Format(time.DateOnly), Kernel: release, Build: build.Read(), Results: results}
	names := map[string]bool{}
	var products []string
	for _, target := range targets {
		t.Functions = append(t.Functions, tried{target.PCI, target.describe(), firmware(target)})
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
		Live:  &doctor.Live{VFs: vfs}, Trial: t,
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

// firmware returns the version that ethtool prints; "" = unknown.
func firmware(t *target) string {
	name := t.IfName
	if t.Parent != nil {
		name = t.Parent.IfName
	}
	if name == "" {
		return ""
	}
	out, err := exec.Command("ethtool", "-i", name).Output()
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(out)) {
		if version, ok := strings.CutPrefix(line, "firmware-version:"); ok {
			return strings.TrimSpace(version)
		}
	}
	return ""
}
