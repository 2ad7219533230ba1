package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/clierr"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/sysfs"
)

// host is the examined machine, which is this one or a capture.
type host struct {
	*node.Node
	captured string            // file of the capture; "" = this machine
	build    build.Info        // build of this program, or of the program that wrote the capture
	now      time.Time         // time when the machine was opened or captured
	file     *capturefile.Host // nil = this machine
	devices  func() (hostdev.Host, error)
}

// host opens the machine that --capture selects.
func (t *tool) host() (_ *host, err error) {
	open := t.machine
	if t.captureFile != "" {
		open = t.capturedHost
	}
	t.opened, err = open()
	return t.opened, err
}

// close removes the unpacked files of a capture.
func (t *tool) close() {
	if t.opened != nil && t.opened.Root != "" {
		_ = os.RemoveAll(t.opened.Root)
	}
}

func (t *tool) machine() (*host, error) {
	settings, err := t.settings()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(t.claimDir); err != nil && t.claimDir != "" {
		return nil, clierr.For(fmt.Errorf("--dra-state-dir: %w", err), "name a directory that exists, or leave the flag out")
	}
	sys, err := sysfs.Open(settings.Sysfs)
	if err != nil {
		return nil, clierr.For(err, "mount it there, or set sysfs in the node settings")
	}
	bootID, err := journal.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot ID: %w", err)
	}
	kernel := link.NewKernel(sys.Files())
	devices := func() (hostdev.Host, error) { return hostdev.Live(sys) }
	h := &host{devices: devices, build: build.Read(), now: time.Now(), Node: node.Open(node.Options{
		Settings:  settings,
		Finder:    &discovery.Finder{Sys: sys, Interfaces: kernel, Eswitches: kernel},
		ClaimDir:  cmp.Or(t.claimDir, state.NodeDir(settings.StateDir)),
		BootID:    bootID,
		NetnsGone: link.NetnsGone,
	})}
	if filepath.Clean(settings.Sysfs) == "/sys" {
		h.Sriovnet = node.Sriovnet
	}
	return h, nil
}

// asRoot adds a remedy to an error that root does not get: here, or for a capture the advice to capture the host as
// root.
func (h *host) asRoot(err error, here string) error {
	if h.captured != "" {
		here = "capture the host as root"
	}
	return clierr.For(err, here)
}

// unseen is the error of a command that could not examine everything.
func (h *host) unseen(what string) error {
	return h.asRoot(errors.New(what), "run as root, and not in a container")
}

// capturedHost opens the capture. It unpacks the files into a private directory, which close removes.
func (t *tool) capturedHost() (*host, error) {
	const again = "make one with: devinfoctl capture -o FILE.txtar"
	file, err := capturefile.Load(t.captureFile)
	if err != nil {
		return nil, clierr.For(fmt.Errorf("--capture: %w", err), again)
	}
	links, err := linkhost.New(file)
	was, stateErr := capture.StateOf(file)
	if err = cmp.Or(err, stateErr); err != nil {
		return nil, clierr.For(fmt.Errorf("--capture: %s: %w", t.captureFile, err), again)
	}
	if t.nodeFile != "" {
		if was.Settings, err = t.settings(); err != nil {
			return nil, err
		}
	}
	root, err := os.MkdirTemp("", "devinfoctl-")
	if err == nil {
		err = file.UnpackRoot(root)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unpack %s: %w", t.captureFile, err), os.RemoveAll(root))
	}
	sys := sysfs.New(file.Sys())
	devices := func() (hostdev.Host, error) {
		return hostdev.Host{Sys: sys, Links: links.Links, Eswitches: links}, nil
	}
	return &host{devices: devices, captured: t.captureFile, file: file, build: was.Build, now: was.Time, Node: node.Open(node.Options{
		Settings:  was.Settings,
		Finder:    &discovery.Finder{Sys: sys, Interfaces: links, Eswitches: links},
		ClaimDir:  cmp.Or(t.claimDir, was.ClaimDir, state.DefaultDir),
		BootID:    was.BootID,
		Root:      root,
		NetnsGone: func(path string) (bool, error) { return !links.HasNetns(path), nil },
	})}, nil
}

// complete returns the completion of an argument: the names of the devices of this machine or of the capture, and with holders
// those of the pods that have them.
func (t *tool) complete(holders bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		h, err := t.host()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if holders {
			list, _ := h.Recorded() // unreadable attachments have no names
			for _, a := range list {
				names = append(names, a.PodName(), a.Network)
			}
		}
		from, err := h.devices()
		if err != nil {
			return names, cobra.ShellCompDirectiveNoFileComp
		}
		from.Eswitches = nil // their modes do not matter
		devices, _, _ := hostdev.Read(from)
		for _, d := range devices {
			names = append(names, d.At.Name, d.IfName)
			names = append(names, d.RDMA.Devices...)
		}
		slices.Sort(names)
		return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" }), cobra.ShellCompDirectiveNoFileComp
	}
}
