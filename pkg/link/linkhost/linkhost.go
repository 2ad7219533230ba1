// Package linkhost gives package link's answers for a captured host: the same
// questions, answered from the netlink/ parts of its text file, and where the
// kernel would have been asked through sysfs, from its sysfs.
//
// The file has the host's interfaces and those of one pod. Whatever network
// namespace is named, it is that pod's.
package linkhost

import (
	"encoding/json"
	"fmt"
	"net"
	"syscall"

	"devinfo-cni.io/pkg/hosttxt"
	"devinfo-cni.io/pkg/link"
)

// Host answers for one captured host, to any number of goroutines.
type Host struct {
	eswitch link.Eswitch
	host    []ipLink
	pod     []ipLink // nil if the file has no pod
	busInfo map[string]string
	vdpa    map[string]vdpaConfig
}

// ipLink is what ip -d -j link says of an interface.
type ipLink struct {
	Index     int    `json:"ifindex"`
	Name      string `json:"ifname"`
	Address   string `json:"address"`
	Bus       string `json:"parentbus"`
	Parent    string `json:"parentdev"`
	Link      string `json:"link"`         // the lower interface in the same namespace, by name
	LinkIndex int    `json:"link_index"`   // in another one, by index
	LinkNetns *int   `json:"link_netnsid"` // says that it is in another one
	Info      struct {
		Kind string `json:"info_kind"`
	} `json:"linkinfo"`
}

type vdpaConfig struct {
	MAC string `json:"mac"`
}

// New reads the netlink/ parts of a host. An error names the part.
func New(h *hosttxt.Host) (*Host, error) {
	var vdpa struct{ Config map[string]vdpaConfig }
	var eswitches struct {
		Dev map[string]struct{ Mode string }
	}
	var ports struct{ Port map[string]devlinkPort }
	host := new(Host)
	err := read(h, map[string]any{
		"netlink/ip-link.json":         &host.host,
		"netlink/pod-ip-link.json":     &host.pod,
		"netlink/ethtool.json":         &host.busInfo,
		"netlink/vdpa-config.json":     &vdpa,
		"netlink/devlink-eswitch.json": &eswitches,
		"netlink/devlink-port.json":    &ports,
	})
	if err != nil {
		return nil, err
	}
	byDevice, err := portsByDevice(ports.Port)
	if err != nil {
		return nil, fmt.Errorf("netlink/devlink-port.json: %w", err)
	}
	mode := func(pf string) (string, error) {
		dev, ok := eswitches.Dev["pci/"+pf]
		if !ok {
			return "", syscall.ENODEV
		}
		return dev.Mode, nil
	}
	host.vdpa = vdpa.Config
	host.eswitch = link.Eswitch{Sys: h.Sys(), Mode: mode, Ports: byDevice.ports}
	return host, nil
}

// read decodes each part that the host has.
func read(h *hosttxt.Host, parts map[string]any) error {
	for name, to := range parts {
		data := h.File(name)
		if data == nil {
			continue
		}
		if err := json.Unmarshal(data, to); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// Interface is link.Kernel's. BusInfo is known of the host's interfaces only.
func (h *Host) Interface(netns, name string) (link.Interface, error) {
	list, where := h.host, ""
	if netns != "" {
		list, where = h.pod, " in "+netns
	}
	if list == nil && netns != "" {
		return link.Interface{}, fmt.Errorf("interface %q%s: %w: the captured host has no pod", name, where, link.ErrNoNetns)
	}
	for _, l := range list {
		if l.Name == name {
			return *h.describe(l, netns == "", maxDepth), nil
		}
	}
	return link.Interface{}, fmt.Errorf("interface %q%s: %w", name, where, link.ErrNoInterface)
}

// maxDepth is package link's.
const maxDepth = 8

func (h *Host) describe(l ipLink, onHost bool, depth int) *link.Interface {
	mac, _ := net.ParseMAC(l.Address) // a tunnel's is an IP address
	i := &link.Interface{
		Name: l.Name, Index: l.Index, Kind: l.Info.Kind, MAC: mac, Bus: l.Bus, Parent: l.Parent,
	}
	if onHost && (i.Parent == "" || i.Bus == "virtio") {
		i.BusInfo = h.busInfo[l.Name]
	}
	if i.Stacked() && depth > 0 {
		i.Lower = h.lower(l, onHost, depth-1)
	}
	return i
}

// lower follows a link of the pod into another namespace to the host: that is
// the only other one the file has.
func (h *Host) lower(l ipLink, onHost bool, depth int) *link.Interface {
	list, away := h.pod, l.LinkNetns != nil
	switch {
	case onHost && away:
		return nil
	case onHost || away:
		list, onHost = h.host, true
	}
	for _, m := range list {
		if away && m.Index == l.LinkIndex || !away && m.Name == l.Link {
			return h.describe(m, onHost, depth)
		}
	}
	return nil
}

// VDPAMAC is link.Kernel's.
func (h *Host) VDPAMAC(name string) (mac net.HardwareAddr, ok bool, err error) {
	text := h.vdpa[name].MAC
	if text == "" || text == "00:00:00:00:00:00" {
		return nil, false, nil
	}
	mac, err = net.ParseMAC(text)
	if err != nil {
		return nil, false, fmt.Errorf("vdpa device %s: %w", name, err)
	}
	return mac, true, nil
}

// Switchdev is link.Kernel's.
func (h *Host) Switchdev(pf string) (bool, error) { return h.eswitch.Switchdev(pf) }

// Representor is link.Kernel's.
func (h *Host) Representor(pf string, flavour link.Flavour, number int) (name string, ok bool, err error) {
	return h.eswitch.Representor(pf, flavour, number)
}
