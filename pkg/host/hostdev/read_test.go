package hostdev_test

import (
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/host/capturefile"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/link/linkhost"
	"devinfo-cni.io/pkg/host/listing"
	"devinfo-cni.io/pkg/host/sysfs"
	"devinfo-cni.io/test/difftest"
	"devinfo-cni.io/test/goldentest"
)

func names(ports []sysfs.Port) (list []string) {
	for _, p := range ports {
		list = append(list, p.Name)
	}
	return list
}

// each reads every captured host, after change has modified it, and calls look with its devices.
func each(t *testing.T, change func(*hostdev.Host), look func(t *testing.T, host hostdev.Host, links *linkhost.Kernel, devices []*hostdev.Device, warnings []string)) {
	t.Helper()
	for _, name := range capturetest.Names(t) {
		file := capturetest.Load(t, name)
		links, err := linkhost.New(file)
		difftest.Must(t, err)
		host := hostdev.Host{Sys: sysfs.New(file.Sys()), Links: links.Links, Eswitches: links}
		change(&host)
		devices, warnings, err := hostdev.Read(host)
		difftest.Must(t, err)
		t.Run(name, func(t *testing.T) { look(t, host, links, devices, warnings) })
	}
}

// judge returns how many ports the function of a device has, and what else is on it.
func judge(sys *sysfs.FS, d *hostdev.Device) (count, carries string, err error) {
	if d.PCI == "" {
		return "", "", nil
	}
	ports, err := hostdev.CountPorts(sys, *d.Function, nil)
	carries, carryErr := hostdev.Carries(sys, *d.Function)
	carries, _, _ = strings.Cut(carries, ",")
	return []string{"unknown", "one", "several"}[ports], carries, cmp.Or(err, carryErr)
}

// describe formats the non-zero facts of a device.
func describe(t *testing.T, sys *sysfs.FS, d *hostdev.Device) string {
	t.Helper()
	at := func(d *hostdev.Device) string {
		if d == nil {
			return ""
		}
		return d.At.Bus + "/" + d.At.Name
	}
	count, carries, err := judge(sys, d)
	difftest.Must(t, err)
	number := ""
	if d.Number != nil {
		number = fmt.Sprint("no.", *d.Number)
	}
	function := d.Ref.Function()
	if d.Function != nil {
		function = d.Function.Address.String()
	}
	line := string(d.Kind) + " " + at(d)
	for _, fact := range [][2]any{
		{"function", function}, {"interface", d.IfName}, {"on", at(d.Parent)}, {"number", number}, {"driver", d.Driver}, {"vfs", d.VFs}, {"most", d.MaxVFs}, {"path", d.Path},
		{"ports", names(d.Ports)}, {"represents", d.Represents}, {"representor", d.Representor}, {"eswitch", d.Eswitch}, {"rdma", d.RDMA.Devices},
		{"rdma-on", d.RDMAOn}, {"bound-to", d.BoundTo}, {"serves", at(d.Serves)}, {"port-count", count}, {"carries", carries}, {"lacks-interface", d.LacksInterface()}, {"only-rdma", d.OnlyRDMA()},
	} {
		if text := strings.Trim(fmt.Sprint(fact[1]), "[]"); text != "" && text != "0" && text != "false" {
			line += fmt.Sprintf(" %s=%s", fact[0], strings.ReplaceAll(text, " ", ","))
		}
	}
	return line + "\n"
}

func TestDevicesOfCapturedHosts(t *testing.T) {
	hosts := &txtar.Archive{Comment: []byte("The devices of the captured hosts.\n")}
	described := capturetest.Described(t)
	each(t, func(*hostdev.Host) {}, func(t *testing.T, host hostdev.Host, _ *linkhost.Kernel, devices []*hostdev.Device, warnings []string) {
		name := path.Base(t.Name())
		if !slices.Contains(described, name) {
			return
		}
		text := strings.Join(append(warnings, ""), "\n")
		for _, d := range devices {
			text += describe(t, host.Sys, d)
		}
		hosts.Files = append(hosts.Files, txtar.File{Name: name, Data: []byte(text)})
	})
	goldentest.File(t, "testdata/hosts.txtar", string(txtar.Format(hosts)))
}

func TestInterfaceOfVirtioWithoutPCIIsThatOfANIC(t *testing.T) {
	file, err := capturefile.Parse([]byte(`made up: a micro VM
-- sys/bus/virtio/devices/virtio0 -> ../../../devices/platform/mmio/virtio0 --
-- sys/class/net/eth0 -> ../../devices/platform/mmio/virtio0/net/eth0 --
-- sys/devices/platform/mmio/virtio0/net/eth0/device -> ../../../virtio0 --
-- sys/devices/platform/mmio/virtio0/subsystem -> ../../../../bus/virtio --
`))
	difftest.Must(t, err)
	host := hostdev.Host{Sys: sysfs.New(file.Sys()), Links: []listing.Interface{{Index: 2, Name: "eth0", Bus: "virtio", Parent: "virtio0"}}}
	devices, _, err := hostdev.Read(host)
	if err != nil || len(devices) != 1 {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	difftest.Equal(t, describe(t, host.Sys, devices[0]), "nic virtio/virtio0 interface=eth0 ports=eth0\n")
	type place = hostdev.Place
	for _, c := range []struct {
		host, virtio, busInfo string
		want                  place
		byEthtool             bool
	}{
		{"vdpa-sim", "virtio4", "", place{"vdpa", "vdpa1"}, false},
		{"vdpa-vf-virtio", "virtio4", "vpvdpa0", place{"vdpa", "vpvdpa0"}, true},
		{"vdpa-vf-virtio", "virtio3", "N/A", place{"pci", "0000:02:00.0"}, false},
		{"vdpa-vf-virtio", "virtio9", "", place{}, false},
	} {
		capturetest.EachFailure(capturetest.Load(t, c.host).Sys(), func(files fs.FS, failed *string) {
			got, byEthtool, err := hostdev.OverVirtio(sysfs.New(files), c.virtio, c.busInfo)
			if (err != nil) != (*failed != "") || err == nil && (got != c.want || byEthtool != c.byEthtool) {
				t.Errorf("%s: %s fails: %v, %v, %v", c.virtio, *failed, got, byEthtool, err)
			}
		})
	}
}

// refusing is an [hostdev.Interfaces] that cannot read.
type refusing struct{}

func (refusing) Interface(string, string) (link.Interface, error) {
	return link.Interface{}, syscall.EIO
}

// Each answer of devlink waits for the lock of the device, and in legacy mode no port is a representor.
func TestEswitchIsAskedOnlyOnce(t *testing.T) {
	modes, ports := map[string]int{}, map[string]int{}
	counted := func(h *hostdev.Host) {
		e := h.Eswitches.(*linkhost.Kernel).Eswitch
		h.Eswitches = link.Eswitch{
			Sys:   e.Sys,
			Mode:  func(pf string) (string, error) { modes[pf]++; return e.Mode(pf) },
			Ports: func(pf string) ([]link.PortRecord, error) { ports[pf]++; return e.Ports(pf) },
		}
	}
	total := 0
	each(t, counted, func(t *testing.T, host hostdev.Host, links *linkhost.Kernel, devices []*hostdev.Device, _ []string) {
		for _, d := range devices {
			if modes[d.PCI] > 1 || ports[d.PCI] > 1 || ports[d.PCI] > 0 && d.Eswitch != "switchdev" {
				t.Errorf("%s, %s: read %d times, and its ports %d times", d.PCI, d.Eswitch, modes[d.PCI], ports[d.PCI])
			}
			total += ports[d.PCI]
			if d.Kind == hostdev.VDPA && d.Driver == "virtio" && d.Ports != nil {
				if got, err := hostdev.Ports(host.Sys, refusing{}, d.At); err == nil {
					t.Errorf("%s: its interfaces cannot be read, but are %v", d.VDPA, got)
				}
			}
		}
		clear(modes)
		clear(ports)
		if all, _, err := hostdev.Read(hostdev.Host{Sys: host.Sys, Links: links.Links}); err != nil || len(all) != len(devices) {
			t.Errorf("without eswitches: %d devices of %d, %v", len(all), len(devices), err)
		}
	})
	if total == 0 {
		t.Error("no host is in switchdev mode")
	}
}

// mlx4_core makes one interface for each port of a function.
func TestPortsAreCountedUntilThereAreTwo(t *testing.T) {
	p1, moved := &link.Interface{Name: "p1", Index: 2}, &link.Interface{Name: "net1", Index: 2}
	child, other := &link.Interface{Name: "net1", PortName: "p0"}, &link.Interface{Name: "net1", PortName: "p1"} // the one that is left is p0
	const mlx4, verbs, one, two = "mlx4_core", "infiniband_verbs/uverbs0", "infiniband/mlx4_0/ports/1", "infiniband/mlx4_0/ports/2"
	for _, c := range []struct {
		driver string
		ports  int
		own    *link.Interface
		rdma   []string
		want   hostdev.PortCount
	}{
		{mlx4, 0, nil, nil, hostdev.AtMostOnePort}, {mlx4, 1, nil, nil, hostdev.PortsUnknown}, {mlx4, 1, p1, nil, hostdev.PortsUnknown}, {mlx4, 0, moved, nil, hostdev.PortsUnknown},
		{mlx4, 2, nil, nil, hostdev.SeveralPorts}, {mlx4, 2, p1, nil, hostdev.SeveralPorts}, {mlx4, 1, moved, nil, hostdev.SeveralPorts},
		{mlx4, 1, child, nil, hostdev.PortsUnknown}, {mlx4, 1, other, nil, hostdev.SeveralPorts},
		{mlx4, 1, nil, []string{verbs}, hostdev.PortsUnknown}, {mlx4, 1, nil, []string{verbs, one}, hostdev.AtMostOnePort},
		{mlx4, 1, nil, []string{verbs, one, two}, hostdev.SeveralPorts}, {"igb", 1, nil, nil, hostdev.AtMostOnePort}, {"ice", 1, nil, nil, hostdev.AtMostOnePort},
	} {
		text := string(capturetest.Ports(c.driver, c.ports))
		if c.own != nil && c.own.PortName != "" {
			text = strings.ReplaceAll(text, "phys_port_name !EOPNOTSUPP --", "phys_port_name --\np0")
		}
		for _, dir := range c.rdma {
			text += "-- sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/" + dir + "/ --\n"
		}
		file, err := capturefile.Parse([]byte(text))
		difftest.Must(t, err)
		sys := sysfs.New(file.Sys())
		fn, _, err := sys.PCI(pci.Address{Bus: 0x3b})
		difftest.Must(t, err)
		capturetest.EachFailure(file.Sys(), func(files fs.FS, failed *string) {
			got, err := hostdev.CountPorts(sysfs.New(files), fn, c.own)
			sure := err == nil && got != hostdev.PortsUnknown
			if *failed == "" && (got != c.want || err != nil) || *failed != "" && sure && (got != c.want || got == hostdev.AtMostOnePort) {
				t.Errorf("%s, %d ports, own %v, RDMA %v: %q fails: %d, %v; want %d", c.driver, c.ports, c.own, c.rdma, *failed, got, err, c.want)
			}
		})
	}
	for port, want := range map[*link.Interface]map[string]bool{{}: {"ice": true, "igb": false}, {PortName: "p0"}: {"ice": false}} {
		for driver, may := range want {
			difftest.Same(t, driver+port.PortName, hostdev.MayBeOfSF(sysfs.Function{Driver: driver}, port), may)
		}
	}
	if (&hostdev.Device{Ref: hostdev.Ref{Kind: hostdev.SF}}).LacksInterface() {
		t.Error("the interface of an SF without a number, as of ice, is below the function")
	}
}

func TestInterfacesAreSortedByPort(t *testing.T) {
	file, err := capturefile.Parse(bytes.ReplaceAll(capturetest.Ports("mlx4_core", 2), []byte("p1"), []byte("p9")))
	difftest.Must(t, err)
	ports, err := hostdev.Ports(sysfs.New(file.Sys()), nil, hostdev.Place{Bus: "pci", Name: "0000:3b:00.0"})
	difftest.Must(t, err)
	difftest.Equal(t, names(ports), []string{"p9", "p2"})
	links, err := linkhost.New(file)
	difftest.Must(t, err)
	devices, _, err := hostdev.Read(hostdev.Host{Sys: sysfs.New(file.Sys()), Links: links.Links})
	if err != nil || len(devices) != 1 || devices[0].IfName != "p9" {
		t.Errorf("%+v, %v", devices, err)
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
			difftest.Must(t, err)
			difftest.Same(t, d.At.Name, names(d.Ports), names(ports))
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
			if d.Kind == hostdev.VDPA && strings.HasPrefix(d.Path, "virtio") && d.Ports == nil {
				t.Errorf("%s has one virtio device, %s, and no interface", d.VDPA, d.Path)
			}
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

// An IPoIB child, and a port of a switch, show the device of another interface.
func TestBorrowedDevicesHaveNoInterface(t *testing.T) {
	for kind, lower := range map[string]string{"dsa": "", "ipoib": "ib0"} {
		borrowed := func(h *hostdev.Host) {
			for n := range h.Links {
				h.Links[n].Info.Kind, h.Links[n].Link = kind, lower
			}
		}
		each(t, borrowed, func(t *testing.T, _ hostdev.Host, _ *linkhost.Kernel, devices []*hostdev.Device, _ []string) {
			for _, d := range devices {
				if d.Ports != nil || d.Represents != nil {
					t.Errorf("%s: %v, %v", d.At.Name, d.Ports, d.Represents)
				}
			}
		})
	}
}

func TestFailedReadHidesNoDevice(t *testing.T) {
	for _, name := range []string{"igb-sriov", "mlx5-vdpa", "mlx5-infiniband", "erdma", "pds-vdpa"} {
		file := capturetest.Load(t, name)
		links, err := linkhost.New(file)
		difftest.Must(t, err)
		var want []*hostdev.Device
		capturetest.EachFailure(file.Sys(), func(files fs.FS, failed *string) {
			eswitches := links.Eswitch
			eswitches.Sys = files // read for representors only if devlink has no ports
			eswitches.Ports = func(string) ([]link.PortRecord, error) { return nil, syscall.ENODEV }
			got, warnings, err := hostdev.Read(hostdev.Host{Sys: sysfs.New(files), Links: links.Links, Eswitches: eswitches})
			if want == nil {
				difftest.Must(t, err)
				want = got
			}
			if err == nil && warnings == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %s fails, and nothing says so", name, *failed)
			}
		})
		facts := map[string]any{}
		for _, d := range want {
			capturetest.EachFailure(file.Sys(), func(files fs.FS, failed *string) {
				ports, err := hostdev.Ports(sysfs.New(files), links, d.At)
				count, carries, countErr := judge(sysfs.New(files), d)
				if *failed == "" {
					facts[d.At.Name] = fmt.Sprint(ports, count, carries)
				}
				if got := fmt.Sprint(ports, count, carries); cmp.Or(err, countErr) == nil && got != facts[d.At.Name] && count != "unknown" {
					t.Errorf("%s, %s: %s fails, and nothing says so: %s", name, d.At.Name, *failed, got)
				}
			})
		}
	}
}
