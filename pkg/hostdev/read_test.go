package hostdev_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"devinfo-cni.io/pkg/capturefile"
	"devinfo-cni.io/pkg/hostdev"
	"devinfo-cni.io/pkg/link/linkhost"
	"devinfo-cni.io/pkg/sysfs"
)

func captured(t *testing.T, name string) (hostdev.Host, *linkhost.Kernel) {
	t.Helper()
	file, err := capturefile.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	links, err := linkhost.New(file)
	if err != nil {
		t.Fatal(err)
	}
	return hostdev.Host{Sys: sysfs.New(file.Sys()), Links: links.Links, Eswitches: links}, links
}

func names(ports []sysfs.Port) (list []string) {
	for _, p := range ports {
		list = append(list, p.Name)
	}
	return list
}

// each reads every captured host, after change has modified it, and calls look with its devices.
func each(t *testing.T, change func(*hostdev.Host), look func(t *testing.T, host hostdev.Host, links *linkhost.Kernel, devices []*hostdev.Device, warnings []string)) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/hosts/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d captured hosts, %v", len(files), err)
	}
	for _, file := range files {
		host, links := captured(t, file)
		change(&host)
		devices, warnings, err := hostdev.Read(host)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(filepath.Base(file), func(t *testing.T) { look(t, host, links, devices, warnings) })
	}
}

func TestPortsAndReadFindSameInterfaces(t *testing.T) {
	seen := 0
	each(t, func(*hostdev.Host) {}, func(t *testing.T, host hostdev.Host, links *linkhost.Kernel, devices []*hostdev.Device, _ []string) {
		for _, d := range devices {
			ports, err := hostdev.Ports(host.Sys, links, d.At)
			ports = slices.DeleteFunc(ports, func(p sysfs.Port) bool { // only netlink shows them
				i, err := links.Interface("", p.Name)
				return err != nil || i.Child
			})
			if diff := cmp.Diff(names(d.Ports), names(ports)); diff != "" || err != nil {
				t.Errorf("%s: %v %s", d.At.Name, err, diff)
			}
			seen += len(ports)
		}
	})
	if seen < 40 {
		t.Errorf("only %d interfaces were compared", seen)
	}
}

// If the interface were assigned to the function, a pod that gets the function would not have the interface.
func TestInterfaceOfUnnamedVDPADeviceIsNotAssignedToFunction(t *testing.T) {
	warned := 0
	unnamed := func(h *hostdev.Host) {
		for n := range h.Links {
			h.Links[n].BusInfo = ""
		}
	}
	each(t, unnamed, func(t *testing.T, host hostdev.Host, _ *linkhost.Kernel, devices []*hostdev.Device, warnings []string) {
		warned += len(warnings)
		for _, d := range devices {
			for _, p := range d.Ports {
				n, _, err := host.Sys.Netdev(p.Name)
				if n.Bus == "virtio" && d.PCI != "" && d.Driver != hostdev.VirtioNIC || err != nil {
					t.Errorf("%s, on driver %q, has %s on %s: %v", d.PCI, d.Driver, p.Name, n.Device, err)
				}
			}
		}
	})
	if warned == 0 {
		t.Error("no host has such an interface")
	}
}
