package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
)

const ovsDir = "/var/lib/cni/ovs-cni"

type ovsConf struct {
	common
	Bridge        string `json:"bridge"`
	Vlan          *int   `json:"vlan,omitempty"`
	MTU           int    `json:"mtu,omitempty"`
	InterfaceType string `json:"interface_type,omitempty"` // of Open vSwitch
}

// ovsCache is what DEL goes by.
type ovsCache struct {
	Conf ovsConf
	Link string // the VF's interface; "" if it was not moved
}

func ovsCachePath(args *skel.CmdArgs) string {
	return filepath.Join(ovsDir, args.ContainerID+"-"+args.IfName)
}

// info reads the type in the device-info file, and fails if the file is told of and is not
// there.
func (c *ovsConf) info() (kind string, err error) {
	path := c.runtime("CNIDeviceInfoFile")
	if path == "" {
		return "", nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var info struct{ Type string }
	err = json.Unmarshal(data, &info)
	return info.Type, err
}

// parseOVS refuses what Open vSwitch would not take for an interface that is there.
func parseOVS(args *skel.CmdArgs) (c ovsConf, err error) {
	if err := parse(args.StdinData, &c); err != nil {
		return c, err
	}
	if !slices.Contains([]string{"", "system", "dpdk", "tap", "internal"}, c.InterfaceType) {
		return c, fmt.Errorf("interface_type %q is unknown to Open vSwitch", c.InterfaceType)
	}
	return c, nil
}

// vsctl changes Open vSwitch's database, waits for ovs-vswitchd, and gives what is printed.
func vsctl(args ...string) (string, error) {
	out, err := exec.Command("ovs-vsctl", append([]string{"--timeout=60"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ovs-vsctl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// connect makes the representor a port of the bridge.
func (c *ovsConf) connect(port string) error {
	args := []string{"add-port", c.Bridge, port}
	if c.Vlan != nil {
		args = append(args, fmt.Sprint("tag=", *c.Vlan))
	}
	_, err := vsctl(append(args, "--", "set", "interface", port, fmt.Sprintf("type=%q", c.InterfaceType))...)
	return err
}

func ovsAdd(args *skel.CmdArgs) error {
	conf, err := parseOVS(args)
	if err != nil {
		return err
	}
	kind, err := conf.info()
	if err != nil {
		return err
	}
	f, err := vf(conf.DeviceID)
	if err != nil {
		return err
	}
	representor, err := f.representor()
	if err != nil {
		return err
	}
	c := ovsCache{Conf: conf}
	inside, err := c.intoPod(args, f, kind)
	if err == nil {
		err = errors.Join(os.MkdirAll(ovsDir, 0o700), save(ovsCachePath(args), c))
	}
	if err == nil {
		err = errors.Join(conf.connect(representor.Attrs().Name), netlink.LinkSetUp(representor))
	}
	if err != nil {
		return err
	}
	outside := &current.Interface{Name: representor.Attrs().Name, Mac: representor.Attrs().HardwareAddr.String(), Mtu: conf.MTU}
	result := &current.Result{Interfaces: []*current.Interface{outside, inside}}
	if err := conf.addresses(args, result, 1, c.Link != ""); err != nil {
		return err
	}
	return conf.print(result)
}

// intoPod moves the VF, unless a program is to have it, or its vDPA device.
func (c *ovsCache) intoPod(args *skel.CmdArgs, f function, kind string) (i *current.Interface, err error) {
	i = &current.Interface{Name: args.IfName, Sandbox: args.Netns, Mtu: c.Conf.MTU}
	switch {
	case kind == "vdpa":
		i.Mac, err = vdpaMAC(f)
	case f.link != "":
		c.Link = f.link
		i.Mac, err = moveVF(f.link, args)
	case !f.userspace():
		err = fmt.Errorf("the VF %s has neither an interface nor a DPDK driver", c.Conf.DeviceID)
	}
	return i, err
}

func moveVF(name string, args *skel.CmdArgs) (mac string, err error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", err
	}
	return link.Attrs().HardwareAddr.String(), move(link, args.Netns, args.IfName)
}

// vdpaMAC is that of the VF's only vDPA device, which must be on vhost_vdpa.
func vdpaMAC(f function) (string, error) {
	dir, err := filepath.EvalSymlinks(f.dir)
	if err != nil {
		return "", err
	}
	all, _ := filepath.Glob(filepath.Join(sys(), "bus/vdpa/devices/*"))
	all = slices.DeleteFunc(all, func(path string) bool {
		target, err := filepath.EvalSymlinks(path)
		return err != nil || filepath.Dir(target) != dir
	})
	if len(all) != 1 {
		return "", fmt.Errorf("%s has %d vDPA devices, not one", filepath.Base(f.dir), len(all))
	}
	name := filepath.Base(all[0])
	driver, err := os.Readlink(filepath.Join(all[0], "driver"))
	if err != nil || filepath.Base(driver) != "vhost_vdpa" {
		return "", fmt.Errorf("unknown vdpa device type: %s is not on vhost_vdpa", name)
	}
	config, err := netlink.VDPAGetDevConfigByName(name)
	if err != nil {
		return "", err
	}
	return config.Net.Cfg.MACAddr.String(), nil
}

// ovsCheck fails as ADD does if the device-info file is gone.
func ovsCheck(args *skel.CmdArgs) error {
	conf, err := parseOVS(args)
	if err != nil {
		return err
	}
	if _, err := conf.info(); err != nil {
		return err
	}
	result, err := conf.previous()
	if err != nil {
		return err
	}
	inside := slices.ContainsFunc(result.Interfaces, func(i *current.Interface) bool { return i.Name == args.IfName && i.Sandbox == args.Netns })
	port := slices.ContainsFunc(result.Interfaces, func(i *current.Interface) bool {
		bridge, err := vsctl("port-to-br", i.Name)
		return err == nil && i.Sandbox == "" && bridge == conf.Bridge
	})
	if !inside || !port {
		return fmt.Errorf("%s: prevResult has not both %s in the pod and a port of the bridge", conf.Bridge, args.IfName)
	}
	return nil
}

func ovsDel(args *skel.CmdArgs) error {
	var c ovsCache
	err := load(ovsCachePath(args), &c)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = c.Conf.noAddresses(args)
	}
	if err != nil {
		return err
	}
	f, err := vf(c.Conf.DeviceID)
	if err != nil {
		return err
	}
	representor, err := f.representor()
	if err == nil {
		_, err = vsctl("--if-exists", "del-port", representor.Attrs().Name)
		err = errors.Join(err, netlink.LinkSetDown(representor))
	}
	if err == nil && c.Link != "" && args.Netns != "" {
		err = moveBack(args.Netns, args.IfName, c.Link, func(netlink.Link) error { return nil })
	}
	if err != nil {
		return err
	}
	return os.Remove(ovsCachePath(args))
}
