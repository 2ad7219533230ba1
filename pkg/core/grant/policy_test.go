package grant_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
)

// class returns the kind of a device node, as in the table of docs/device-nodes.md.
func class(node string) string {
	switch dir, name := path.Split(strings.TrimPrefix(node, "/dev/")); {
	case strings.HasPrefix(name, "umad"), strings.HasPrefix(name, "issm"):
		return "subnet manager"
	case dir == "infiniband/":
		return "verbs"
	case dir == "vfio/", dir == "vfio/devices/", name == "iommu":
		return "vfio"
	case strings.HasPrefix(name, "vhost-vdpa-"):
		return "vdpa"
	}
	return node
}

// The table of docs/device-nodes.md: which classes of device nodes each way of naming a device gives.
func TestWaysToDeviceNodes(t *testing.T) {
	everywhere := func(path string) (cdispec.DeviceNode, error) { return cdispec.DeviceNode{Path: path, Type: "c"}, nil }
	ways := map[string]struct {
		found    discovery.Device
		claimed  bool
		unleased bool
		setting  func(name, pf string) []string
		withheld []string // all other classes are given
	}{
		"nothing":                 {withheld: []string{"verbs", "subnet manager", "vfio", "vdpa"}},
		"the pod's interface":     {found: discovery.Device{IsInterface: true}, withheld: []string{"subnet manager"}},
		"no lease":                {found: discovery.Device{IsInterface: true}, unleased: true, withheld: []string{"verbs", "subnet manager", "vfio", "vdpa"}},
		"a claim":                 {claimed: true, withheld: []string{"subnet manager", "vfio", "vdpa"}},
		"allowedDevices: *":       {setting: func(_, _ string) []string { return []string{"*"} }, withheld: []string{"subnet manager"}},
		"allowedDevices: its own": {setting: func(name, _ string) []string { return []string{name} }},
		"allowedDevices: its PF":  {setting: func(_, pf string) []string { return []string{pf} }},
		"shared":                  {found: discovery.Device{IsInterface: true, Shared: true}, claimed: true, setting: func(name, _ string) []string { return []string{name, "*"} }, withheld: []string{"verbs", "subnet manager", "vfio", "vdpa"}},
	}
	seen := map[string]int{}
	for _, host := range capturetest.Names(t) {
		sys := sysfs.New(capturetest.Load(t, host).Sys())
		for _, d := range devicesWithNodes(t, sys) {
			for what, way := range ways {
				g := grant.Granter{Sys: sys, Nodes: everywhere}
				if way.claimed {
					g.Claimed = d.name
				}
				if way.unleased {
					g.Leased = func(string) bool { return false }
				}
				if way.setting != nil {
					g.Settings = config.Node{AllowedDevices: way.setting(d.name, d.pf)}
				}
				got, err := g.For(&way.found, d.info)
				difftest.Must(t, err)
				var given []string
				for _, n := range got.Nodes {
					given = append(given, class(n.Path))
				}
				at := fmt.Sprintf("%s, %s, by %s: ", host, d.name, what)
				difftest.Same(t, at+"withheld without a reason", given == nil && got.Refusals == nil, false)
				for _, c := range d.classes {
					seen[c]++
					difftest.Same(t, at+c, slices.Contains(given, c), !slices.Contains(way.withheld, c))
				}
			}
		}
	}
	for _, c := range []string{"verbs", "subnet manager", "vfio", "vdpa"} {
		difftest.Same(t, "a captured host has device nodes of class "+c, seen[c] > 0, true)
	}
}

type device struct {
	name, pf string
	info     *devinfo.Info
	classes  []string
}

// devicesWithNodes returns the devices of a host that have device nodes. PFs with VFs, and functions that may have a
// second port, have rules of their own.
func devicesWithNodes(t *testing.T, sys *sysfs.FS) (list []device) {
	t.Helper()
	functions, err := sys.Functions()
	difftest.Must(t, err)
	for _, fn := range functions {
		vfs, _, _, err := sys.VFs(fn)
		difftest.Must(t, err)
		ports, err := hostdev.CountPorts(sys, fn, nil)
		difftest.Must(t, err)
		rdma, err := sys.RDMANodes(fn)
		difftest.Must(t, err)
		_, onVFIO, err := sys.VFIO(fn)
		difftest.Must(t, err)
		var classes []string
		for _, node := range rdma {
			classes = append(classes, class("/dev/infiniband/"+node))
		}
		if onVFIO {
			classes = append(classes, "vfio")
		}
		if len(classes) > 0 && vfs == 0 && ports == hostdev.AtMostOnePort {
			list = append(list, device{fn.Address.String(), pfOf(fn), function(fn.Address.String()), classes})
		}
	}
	vdpas, err := sys.VDPAs()
	difftest.Must(t, err)
	for _, v := range vdpas {
		if v.Vhost == "" {
			continue
		}
		pf := v.Name // a simulated device has no function
		if v.PCI != nil {
			fn, _, err := sys.PCI(*v.PCI)
			difftest.Must(t, err)
			pf = pfOf(fn)
		}
		list = append(list, device{v.Name, pf, &devinfo.Info{Type: devinfo.TypeVDPA, VDPA: &devinfo.VDPA{ParentDevice: v.Name}}, []string{"vdpa"}})
	}
	return list
}

func pfOf(fn sysfs.Function) string {
	if fn.PF != nil {
		return fn.PF.String()
	}
	return fn.Address.String()
}
