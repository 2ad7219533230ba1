package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/audit"
	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/capture"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/link/linkhost"
	"devinfo-cni.io/pkg/link/opinion"
	"devinfo-cni.io/pkg/sysfs"
)

// host is the host that is looked at: this machine, or a captured one. Files of it
// that node settings and journal entries name are read by path or dir.
type host struct {
	captured string // the file; "" = this machine
	node     config.Node
	sys      *sysfs.FS
	finder   *discovery.Finder
	infos    *store.Dir // the device-info files of node.DeviceInfoDir
	journal  *journal.Journal
	claimDir string // of cni-dra-driver's records
	bootID   string
	build    build.Info // of the program that looks, or that captured
	now      time.Time  // when it was opened or captured

	file      *hosttxt.Host                   // nil = this machine
	root      string                          // "" = /, else where the captured files are unpacked
	netnsGone func(path string) (bool, error) // whether a network namespace is gone
	auditor   *audit.Auditor

	witness *opinion.Witness // of the finder's Switches; nil = sriovnet cannot look at the host
}

// host opens the host that --host names, the first time that it is called. The
// commands that need none do not call it.
func (t *tool) host() (*host, error) {
	if t.opened != nil {
		return t.opened, nil
	}
	open := t.machine
	if t.hostFile != "" {
		open = t.capturedHost
	}
	h, err := open()
	if err != nil {
		return nil, err
	}
	h.finder.Sys = h.sys
	h.infos = h.dir(h.node.DeviceInfoDir)
	h.auditor = &audit.Auditor{Finder: h.finder, Dir: h.dir, NetnsGone: h.netnsGone, BootID: h.bootID, Explain: true}
	h.journal = journal.Open(h.path(h.node.StateDir), h.bootID)
	t.opened = h
	return h, nil
}

// close removes what host has unpacked.
func (t *tool) close() {
	if t.opened != nil && t.opened.root != "" {
		_ = os.RemoveAll(t.opened.root)
	}
}

// machine is the host that we run on.
func (t *tool) machine() (*host, error) {
	node, err := t.settings()
	if err != nil {
		return nil, err
	}
	sys, err := sysfs.Open(node.Sysfs)
	if err != nil {
		return nil, blind(err, "mount it there, or set sysfs in the node settings")
	}
	bootID, err := journal.BootID()
	if err != nil {
		return nil, fmt.Errorf("boot ID: %w", err)
	}
	kernel := link.NewKernel(sys.Files())
	h := &host{
		node:      node,
		sys:       sys,
		finder:    &discovery.Finder{Interfaces: kernel, Switches: kernel},
		claimDir:  cmp.Or(t.claimDir, state.DefaultDir),
		bootID:    bootID,
		build:     build.Read(),
		now:       t.clock(),
		netnsGone: link.NetnsGone,
	}
	if filepath.Clean(node.Sysfs) == "/sys" {
		h.hear(opinion.Sriovnet)
	}
	return h, nil
}

// path is where a file of the host, by its absolute path there, can be read. No name
// leads out of where a captured host was unpacked.
func (h *host) path(name string) string { return filepath.Join("/", h.root, filepath.Clean("/"+name)) }

// dir is a directory of device-info files or CDI specs. That of an attachment is where
// its ADD wrote, Entry.Dir, which the node settings may have left since.
func (h *host) dir(path string) *store.Dir { return store.Open(h.path(path)) }

// writable is the error for commands that change something, where there is nothing
// to be changed.
func (h *host) writable(command string) error {
	if h.captured == "" {
		return nil
	}
	return usage("leave --host out, and run it on the node itself", "%s: %s is a captured host, and cannot be changed", command, h.captured)
}

// capturedHost is the host in the file that --host names. Its files are unpacked
// into a directory that only we may read, until close.
func (t *tool) capturedHost() (*host, error) {
	const remedy = "make one with: devinfoctl capture -o FILE.txtar"
	file, err := hosttxt.Load(t.hostFile)
	if err != nil {
		return nil, blind(fmt.Errorf("--host: %w", err), remedy)
	}
	links, err := linkhost.New(file)
	if err != nil {
		return nil, blind(fmt.Errorf("--host: %s: %w", t.hostFile, err), remedy)
	}
	was := capture.State{Settings: config.DefaultNode()}
	if data := file.File("node/node.json"); data != nil {
		if err := json.Unmarshal(data, &was); err != nil {
			return nil, blind(fmt.Errorf("--host: %s: node/node.json: %w", t.hostFile, err), remedy)
		}
	}
	if t.nodeFile != "" {
		if was.Settings, err = t.settings(); err != nil {
			return nil, err
		}
	}
	h := &host{
		captured:  t.hostFile,
		file:      file,
		node:      was.Settings,
		sys:       sysfs.New(file.Sys()),
		finder:    &discovery.Finder{Interfaces: links, Switches: links},
		claimDir:  cmp.Or(t.claimDir, was.ClaimDir, state.DefaultDir),
		bootID:    was.BootID,
		build:     was.Build,
		now:       was.Time,
		netnsGone: gone(links),
	}
	if h.root, err = os.MkdirTemp("", "devinfoctl-"); err != nil {
		return nil, fmt.Errorf("unpack %s: %w", t.hostFile, err)
	}
	if err := file.UnpackRoot(h.root); err != nil {
		return nil, errors.Join(fmt.Errorf("unpack %s: %w", t.hostFile, err), os.RemoveAll(h.root))
	}
	return h, nil
}

// gone says whether a captured host has lost a network namespace.
func gone(links *linkhost.Host) func(path string) (bool, error) {
	return func(path string) (bool, error) {
		there, _ := links.HasNetns(path) // the error is of one that is there
		return !there, nil
	}
}
