// Package linkhost implements package link for a captured host. It reads the files below netlink/ in the capture
// and, where package link reads sysfs, the captured sysfs.
//
// A capture has the interfaces of the host and, by path, of network namespaces. A capture of one pod instead has the
// interfaces of the pod, which are returned for the path of any network namespace.
package linkhost

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/listing"
)

// Kernel is the [link.Kernel] of a captured host. It may be used concurrently.
type Kernel struct {
	link.Eswitch

	// The lists of package listing for the host's network namespace. Uplinks and Uses are nil if the capture does
	// not have them.
	Links      []listing.Interface
	Uplinks    []string
	Advertised []string
	Uses       map[string]string

	pod   []listing.Interface            // nil if the capture has no pod
	netns map[string][]listing.Interface // by path; nil if the capture has pod instead
	vdpa  map[string]listing.VDPA
}

// New reads the files below netlink/ of a host. The error names the file.
func New(h *capturefile.Host) (*Kernel, error) {
	var vdpa struct{ Config map[string]listing.VDPA }
	var eswitches struct{ Dev map[string]listing.Eswitch }
	var ports struct{ Port map[string]link.PortRecord }
	host := new(Kernel)
	for name, to := range map[string]any{
		"netlink/ip-link.json":         &host.Links,
		"netlink/uplinks.json":         &host.Uplinks,
		"netlink/advertised.json":      &host.Advertised,
		"netlink/uses.json":            &host.Uses,
		"netlink/pod-ip-link.json":     &host.pod,
		"netlink/netns.json":           &host.netns,
		"netlink/vdpa-config.json":     &vdpa,
		"netlink/devlink-eswitch.json": &eswitches,
		"netlink/devlink-port.json":    &ports,
	} {
		if data := h.File(name); data != nil {
			if err := json.Unmarshal(data, to); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	byDevice := map[string][]link.PortRecord{} // by "pci/0000:03:00.0", of handles such as "pci/0000:03:00.0/65535"
	for _, handle := range slices.Sorted(maps.Keys(ports.Port)) {
		if _, err := strconv.ParseUint(path.Base(handle), 10, 32); err != nil || strings.Count(handle, "/") != 2 {
			return nil, fmt.Errorf("netlink/devlink-port.json: port %q is not bus/device/index", handle)
		}
		byDevice[path.Dir(handle)] = append(byDevice[path.Dir(handle)], ports.Port[handle])
	}
	mode := func(pf string) (string, error) {
		dev, ok := eswitches.Dev["pci/"+pf]
		if !ok {
			return "", syscall.ENODEV
		}
		return dev.Mode, nil
	}
	host.vdpa = vdpa.Config
	host.Eswitch = link.Eswitch{Sys: h.Sys(), Mode: mode, Ports: func(pf string) ([]link.PortRecord, error) {
		list, ok := byDevice["pci/"+pf]
		if !ok {
			return nil, syscall.ENODEV
		}
		return list, nil
	}}
	return host, nil
}

func (k *Kernel) Interface(netns, name string) (link.Interface, error) {
	const maxDepth = 8 // as in package link
	links, err := k.in(netns)
	for _, l := range links {
		if l.Called(name) {
			return *k.describe(l, netns, maxDepth), nil
		}
	}
	if err == nil {
		err = link.ErrNoInterface
	}
	if netns != "" {
		return link.Interface{}, fmt.Errorf("interface %q in %s: %w", name, netns, err)
	}
	return link.Interface{}, fmt.Errorf("interface %q: %w", name, err)
}

func (k *Kernel) WithMAC(mac net.HardwareAddr) (names []string, err error) {
	for _, l := range k.Links {
		if own, err := net.ParseMAC(l.Address); err == nil && bytes.Equal(own, mac) {
			names = append(names, l.Name)
		}
	}
	return names, nil
}

// HasNetns reports whether the host has the network namespace, even if it could not be entered for the capture.
func (k *Kernel) HasNetns(path string) bool {
	_, err := k.in(path)
	return !errors.Is(err, link.ErrNoNetns)
}

func (k *Kernel) in(netns string) ([]listing.Interface, error) {
	links, there := k.pod, k.pod != nil
	if k.netns != nil {
		if links, there = k.netns[netns]; !there { // the capture may have /var/run instead of /run
			links, there = k.netns["/var"+netns]
		}
	}
	switch {
	case netns == "":
		return k.Links, nil
	case !there:
		return nil, fmt.Errorf("%w in the capture", link.ErrNoNetns)
	case links == nil:
		return nil, fmt.Errorf("the network namespace could not be entered when the host was captured: %w", fs.ErrPermission)
	}
	return links, nil
}

func (k *Kernel) describe(l listing.Interface, netns string, depth int) *link.Interface {
	mac, _ := net.ParseMAC(l.Address) // the address of a tunnel is an IP address
	i := &link.Interface{
		Name: l.Name, Index: l.Index, Kind: l.Info.Kind, MAC: mac, MTU: l.MTU, Bus: l.Bus, Parent: l.Parent, PortName: l.PortName,
		Child: link.IPoIBChild(l.Info.Kind, l.Link != "" || l.LinkIndex != 0),
	}
	if i.Parent == "" || i.Bus == "virtio" {
		i.BusInfo = l.BusInfo
	}
	if i.Stacked() && depth > 0 {
		i.Lower = k.lower(l, netns, depth-1)
	}
	return i
}

// lower returns the lower interface of l. If an interface in a pod has its lower interface in a different network
// namespace, lower searches the host's interfaces, because the capture does not name the namespace.
func (k *Kernel) lower(l listing.Interface, netns string, depth int) *link.Interface {
	away := l.LinkNetns != nil
	if away && netns == "" {
		return nil
	} else if away {
		netns = ""
	}
	links, _ := k.in(netns)
	for _, m := range links {
		if away && m.Index == l.LinkIndex || !away && m.Name == l.Link {
			return k.describe(m, netns, depth)
		}
	}
	return nil
}

func (k *Kernel) VDPAMAC(name string) (mac net.HardwareAddr, ok bool, err error) {
	text := k.vdpa[name].MAC
	if text == "" || text == "00:00:00:00:00:00" {
		return nil, false, nil
	}
	mac, err = net.ParseMAC(text)
	if err != nil {
		return nil, false, fmt.Errorf("vdpa device %s: %w", name, err)
	}
	return mac, true, nil
}
