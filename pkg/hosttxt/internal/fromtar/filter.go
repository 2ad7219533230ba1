package main

import (
	"io/fs"
	"path"
	"regexp"
	"strings"
)

// attributes says what is kept of a device, by its subsystem.
var attributes = map[string]*regexp.Regexp{
	"pci": regexp.MustCompile(`^(driver|subsystem|physfn|virtfn\d+|iommu_group|vendor|device|class|numa_node` +
		`|sriov_(totalvfs|numvfs|offset|stride|vf_device))$`),
	"virtio":           regexp.MustCompile(`^(driver|subsystem)$`),
	"vdpa":             regexp.MustCompile(`^(driver|subsystem)$`),
	"auxiliary":        regexp.MustCompile(`^(driver|subsystem|sfnum)$`),
	"netdevsim":        regexp.MustCompile(`^(driver|subsystem|sriov_numvfs)$`),
	"net":              regexp.MustCompile(`^(subsystem|device|address|ifindex|phys_port_name|phys_switch_id|dev_port|type)$`),
	"infiniband":       regexp.MustCompile(`^(subsystem|device|parent|node_type|node_guid)$`),
	"infiniband_verbs": regexp.MustCompile(`^(subsystem|device|dev|ibdev)$`),
}

// classes are the subsystems listed below sys/class, not sys/bus.
var classes = map[string]bool{"net": true, "infiniband": true, "infiniband_verbs": true}

// further are attributes of directories that have no subsystem of their own.
var further = regexp.MustCompile(`/vhost-vdpa-\d+/dev$|/infiniband/[^/]+/ports/\d+/gid_attrs/ndevs/0$`)

// filter chooses the entries to keep: attributes of network devices, the links
// by which bus, class and IOMMU group list them, and every link's target.
func (c *capture) filter() map[string]fs.FileMode {
	kept := make(map[string]fs.FileMode)
	for name := range c.links {
		if c.wanted(name) {
			kept[name] = fs.ModeSymlink
		}
	}
	for name := range c.files {
		if c.wanted(name) {
			kept[name] = 0
		}
	}
	for name := range c.errs {
		if c.wanted(name) {
			kept[name] = 0
		}
	}
	for name := range c.dirs {
		base := path.Base(name)
		if (base == "net" || base == "infiniband") && c.wanted(path.Dir(name)+"/subsystem") && c.empty(name) {
			kept[name] = fs.ModeDir
		}
	}
	c.list(kept)
	c.targets(kept)
	return kept
}

func (c *capture) subsystem(device string) string {
	return path.Base(c.links[device+"/subsystem"])
}

// wanted says whether name is an attribute worth keeping of a device worth
// keeping.
func (c *capture) wanted(name string) bool {
	if !strings.HasPrefix(name, "sys/devices/") {
		return false
	}
	device, base := path.Split(name)
	device = path.Clean(device)
	keep, known := attributes[c.subsystem(device)]
	if !known {
		return further.MatchString(name)
	}
	return keep.MatchString(base) && c.network(device)
}

// network leaves out PCI functions of other classes than 02xxxx (network
// controller) and virtio devices that are no NIC.
func (c *capture) network(device string) bool {
	switch c.subsystem(device) {
	case "pci":
		return strings.HasPrefix(string(c.files[device+"/class"]), "0x02")
	case "virtio":
		return path.Base(c.links[device+"/driver"]) == "virtio_net" || c.subsystem(path.Dir(device)) == "pci" && c.network(path.Dir(device))
	}
	return true
}

// list adds the link of each kept device below its bus or class, and below its
// IOMMU group. Some captures have no sys/bus/pci/devices, so the links are made
// here: every kernel has them, with these targets.
func (c *capture) list(kept map[string]fs.FileMode) {
	link := func(name, target string) {
		c.links[name] = strings.Repeat("../", strings.Count(name, "/")-1) + strings.TrimPrefix(target, "sys/")
		kept[name] = fs.ModeSymlink
	}
	for name, mode := range kept {
		device, base := path.Dir(name), path.Base(name)
		if mode != fs.ModeSymlink || !strings.HasPrefix(name, "sys/devices/") {
			continue
		}
		switch kind := c.subsystem(device); {
		case base == "iommu_group":
			link(path.Join(device, c.links[name], "devices", path.Base(device)), device)
		case base == "subsystem" && classes[kind]:
			link("sys/class/"+kind+"/"+path.Base(device), device)
		case base == "subsystem":
			link("sys/bus/"+kind+"/devices/"+path.Base(device), device)
		}
	}
}

// targets adds an empty directory for each link that leads to nothing kept.
// Kept links are in real directories, so joining is right here.
func (c *capture) targets(kept map[string]fs.FileMode) {
	filled := make(map[string]bool)
	for name := range kept {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			filled[dir] = true
		}
	}
	for name, mode := range kept {
		if mode != fs.ModeSymlink {
			continue
		}
		if target := path.Join(path.Dir(name), c.links[name]); !filled[target] {
			kept[target] = fs.ModeDir
		}
	}
}

func (c *capture) empty(dir string) bool {
	for name := range c.dirs {
		if path.Dir(name) == dir {
			return false
		}
	}
	return true
}
