package hosttxt_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/hosttxt"
)

// eachFixture runs f with every host of testdata/hosts.
func eachFixture(t *testing.T, f func(t *testing.T, h *hosttxt.Host)) {
	names, err := filepath.Glob("../../testdata/hosts/*.txtar")
	if err != nil || len(names) < 12 {
		t.Fatalf("testdata/hosts holds %d hosts, %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			h, err := hosttxt.Load(name)
			if err != nil {
				t.Fatal(err)
			}
			f(t, h)
		})
	}
}

func TestFixturesNameMachineAndKernel(t *testing.T) {
	form := regexp.MustCompile(`^[a-z0-9-]+: (from documentation: .+|.+, Linux \d+\.\d+\.\S+)$`)
	eachFixture(t, func(t *testing.T, h *hosttxt.Host) {
		first, _, _ := strings.Cut(h.Comment, "\n")
		if name, _, _ := strings.Cut(first, ":"); name+".txtar" != path.Base(t.Name()) || !form.MatchString(first) {
			t.Errorf("first line %q", first)
		}
	})
}

func TestFixturesAreSmallTextFiles(t *testing.T) {
	entries, err := os.ReadDir("../../testdata/hosts")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(e.Name(), ":") || !info.Mode().IsRegular() || info.Size() > 40<<10 {
			t.Errorf("%s: %v, %d bytes", e.Name(), info.Mode(), info.Size())
		}
	}
}

func TestFixturesHaveNoDanglingLinks(t *testing.T) {
	eachFixture(t, func(t *testing.T, h *hosttxt.Host) {
		sys, links := h.Sys(), 0
		err := fs.WalkDir(sys, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.Type() != fs.ModeSymlink {
				return err
			}
			links++
			info, err := fs.Stat(sys, name)
			if err == nil && !info.IsDir() {
				err = fmt.Errorf("%s leads to a file", name)
			}
			return err
		})
		if err != nil || links == 0 {
			t.Errorf("%d links, %v", links, err)
		}
	})
}

// devices lists the devices of a bus or class.
func devices(t *testing.T, sys fs.FS, dir string) []string {
	t.Helper()
	list, err := fs.Glob(sys, dir+"/*")
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// value reads an attribute without its newline; "" if there is none.
func value(sys fs.FS, name string) string {
	data, _ := fs.ReadFile(sys, name)
	return strings.TrimSpace(string(data))
}

func number(t *testing.T, sys fs.FS, name string) int {
	t.Helper()
	n, err := strconv.Atoi(value(sys, name))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

func TestFixtureDevicesBelongToTheBusThatListsThem(t *testing.T) {
	eachFixture(t, func(t *testing.T, h *hosttxt.Host) {
		sys := h.Sys()
		for _, list := range append(devices(t, sys, "bus/*/devices"), devices(t, sys, "class/*")...) {
			if target, err := fs.ReadLink(sys, list+"/subsystem"); err != nil || path.Base(target) != strings.Split(list, "/")[1] {
				t.Errorf("%s: subsystem %q, %v", list, target, err)
			}
			if target, err := fs.ReadLink(sys, list); err != nil || path.Base(target) != path.Base(list) {
				t.Errorf("%s -> %q, %v", list, target, err)
			}
		}
	})
}

func TestFixtureVFsAreWhereOffsetAndStridePutThem(t *testing.T) {
	eachFixture(t, func(t *testing.T, h *hosttxt.Host) {
		sys := h.Sys()
		for _, dir := range devices(t, sys, "bus/pci/devices") {
			if physfn, err := fs.ReadLink(sys, dir+"/physfn"); err == nil {
				if back, _ := fs.Glob(sys, dir+"/physfn/virtfn*"); len(back) == 0 || path.Dir(physfn) != ".." {
					t.Errorf("%s: physfn -> %s, which has no VFs", dir, physfn)
				}
			}
			if value(sys, dir+"/sriov_numvfs") == "" {
				continue
			}
			pf, err := pci.Parse(path.Base(dir))
			if err != nil {
				t.Fatal(err)
			}
			for i := range number(t, sys, dir+"/sriov_numvfs") {
				vf := pf.RoutingID() + number(t, sys, dir+"/sriov_offset") + i*number(t, sys, dir+"/sriov_stride")
				want := pci.Address{Domain: pf.Domain, Bus: uint8(vf >> 8), Device: uint8(vf >> 3 & 0x1f), Function: uint8(vf & 7)}
				link := fmt.Sprintf("%s/virtfn%d", dir, i)
				if got, err := fs.ReadLink(sys, link); err != nil || got != "../"+want.String() {
					t.Errorf("%s -> %q, %v; want ../%v", link, got, err, want)
				}
				if back, err := fs.ReadLink(sys, link+"/physfn"); err != nil || back != "../"+pf.String() {
					t.Errorf("%s/physfn -> %q, %v; want ../%v", link, back, err, pf)
				}
			}
		}
	})
}

// link is one interface as ip -d -j link gives it.
type link struct {
	Ifindex                               int
	Ifname, Address, Parentbus, Parentdev string
	LinkIndex                             int    `json:"link_index"` // instead of "link" where that is in another namespace
	PhysPortName                          string `json:"phys_port_name"`
}

func TestFixtureSysfsAndNetlinkAgree(t *testing.T) {
	eachFixture(t, func(t *testing.T, h *hosttxt.Host) {
		sys := h.Sys()
		var links []link
		if err := json.Unmarshal(h.File("netlink/ip-link.json"), &links); err != nil {
			t.Fatal(err)
		}
		if dirs := devices(t, sys, "class/net"); len(dirs) != len(links) {
			t.Errorf("class/net has %d interfaces, ip-link.json %d", len(dirs), len(links))
		}
		for _, l := range links {
			dir := "class/net/" + l.Ifname
			if l.Parentbus != "" {
				if _, err := fs.Stat(sys, "bus/"+l.Parentbus+"/devices/"+l.Parentdev+"/net/"+l.Ifname); err != nil {
					t.Error(err)
				}
			}
			if number(t, sys, dir+"/ifindex") != l.Ifindex || value(sys, dir+"/address") != l.Address || value(sys, dir+"/phys_port_name") != l.PhysPortName {
				t.Errorf("%s is not %+v", dir, l)
			}
		}
		pods(t, h, links)
		ports(t, h)
	})
}

// pods checks that no interface of the pod has its device's net/ entry on the
// host, and that what it is linked to is there.
func pods(t *testing.T, h *hosttxt.Host, host []link) {
	data := h.File("netlink/pod-ip-link.json")
	if data == nil {
		return
	}
	var links []link
	if err := json.Unmarshal(data, &links); err != nil {
		t.Fatal(err)
	}
	indexes := make(map[int]bool)
	for _, l := range host {
		indexes[l.Ifindex] = true
	}
	for _, l := range links {
		if l.LinkIndex != 0 && !indexes[l.LinkIndex] {
			t.Errorf("%s is linked to ifindex %d, which the host does not have", l.Ifname, l.LinkIndex)
		}
		if l.Parentbus == "" {
			continue
		}
		entries, err := fs.ReadDir(h.Sys(), "bus/"+l.Parentbus+"/devices/"+l.Parentdev+"/net")
		if err != nil || len(entries) != 0 {
			t.Errorf("%s is in the pod, but on the host its net/ has %d entries, %v", l.Ifname, len(entries), err)
		}
	}
}

// ports checks that the netdevs and devices of the devlink ports exist, and
// that every device with an eswitch mode does.
func ports(t *testing.T, h *hosttxt.Host) {
	var devlink struct {
		Port map[string]struct{ Netdev string }
		Dev  map[string]struct{ Mode string }
	}
	for _, part := range []string{"netlink/devlink-port.json", "netlink/devlink-eswitch.json"} {
		if err := json.Unmarshal(h.File(part), &devlink); err != nil {
			t.Fatalf("%s: %v", part, err)
		}
	}
	exists := func(handle string) {
		bus, dev, _ := strings.Cut(handle, "/")
		if _, err := fs.Stat(h.Sys(), "bus/"+bus+"/devices/"+dev); err != nil {
			t.Errorf("devlink %s: %v", handle, err)
		}
	}
	for port, p := range devlink.Port {
		exists(path.Dir(port))
		if _, err := fs.Stat(h.Sys(), path.Join("class/net", p.Netdev)); err != nil {
			t.Errorf("devlink port %s: %v", port, err)
		}
	}
	for dev, d := range devlink.Dev {
		exists(dev)
		if d.Mode == "" {
			t.Errorf("devlink %s: no eswitch mode", dev)
		}
	}
}

func TestFixtureVdpaDevicesHaveAConfig(t *testing.T) {
	eachFixture(t, func(t *testing.T, h *hosttxt.Host) {
		var vdpa struct {
			Config map[string]struct{ Mac string }
		}
		data := h.File("netlink/vdpa-config.json")
		if data != nil {
			if err := json.Unmarshal(data, &vdpa); err != nil {
				t.Fatal(err)
			}
		}
		dirs := devices(t, h.Sys(), "bus/vdpa/devices")
		if len(dirs) != len(vdpa.Config) {
			t.Errorf("%d vDPA devices, %d configurations", len(dirs), len(vdpa.Config))
		}
		for _, dir := range dirs {
			if vdpa.Config[path.Base(dir)].Mac == "" {
				t.Errorf("%s has no MAC", dir)
			}
		}
	})
}
