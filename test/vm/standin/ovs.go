package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
)

const ovsDir = "/var/lib/cni/ovs-cni"

type ovsConf struct {
	common
	Bridge string `json:"bridge"`
	Vlan   *int   `json:"vlan,omitempty"`
}

// ovsCache is the data that DEL needs.
type ovsCache struct {
	Conf ovsConf
	Link string // the VF's interface; "" = it was not moved
	Port string // its representor
}

// info returns the type in the device-info file. It fails if the configuration has a path and the file is missing.
func (c *ovsConf) info() (kind string, err error) {
	path, _ := c.RuntimeConfig["CNIDeviceInfoFile"].(string)
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

// vsctl changes Open vSwitch's database, and waits for ovs-vswitchd.
func vsctl(args ...string) error {
	if out, err := exec.Command("ovs-vsctl", append([]string{"--timeout=60"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ovs-vsctl %s: %w: %s", args, err, out)
	}
	return nil
}

// representor returns the VF's representor according to devlink.
func (f function) representor() (netlink.Link, error) {
	handle := os.Getenv("STANDIN_SWITCH")
	if handle == "" {
		handle = "pci/" + f.pf
	}
	ports, err := netlink.DevLinkGetAllPortList()
	if err != nil {
		return nil, err
	}
	for _, p := range ports {
		if p.BusName+"/"+p.DeviceName == handle && p.PortFlavour == nl.DEVLINK_PORT_FLAVOUR_PCI_VF && p.VfNumber != nil && int(*p.VfNumber) == f.index {
			return netlink.LinkByName(p.NetdeviceName)
		}
	}
	return nil, fmt.Errorf("%s has no representor of VF %d", handle, f.index)
}

func ovsAdd(args *skel.CmdArgs) error {
	var c ovsCache
	if err := parse(args.StdinData, &c.Conf); err != nil {
		return err
	}
	kind, err := c.Conf.info()
	if err != nil {
		return err
	}
	f, err := vf(c.Conf.DeviceID)
	if err != nil {
		return err
	}
	representor, err := f.representor()
	if err != nil {
		return err
	}
	c.Port = representor.Attrs().Name
	if kind != "vdpa" {
		c.Link = f.link
	}
	result, err := c.Conf.move(args, c.Link)
	if err != nil {
		return err
	}
	add := []string{"add-port", c.Conf.Bridge, c.Port}
	if c.Conf.Vlan != nil {
		add = append(add, fmt.Sprint("tag=", *c.Conf.Vlan))
	}
	if err := errors.Join(save(ovsDir, args, c), vsctl(add...), netlink.LinkSetUp(representor)); err != nil {
		return err
	}
	outside := &current.Interface{Name: c.Port, Mac: representor.Attrs().HardwareAddr.String()}
	result.Interfaces = append([]*current.Interface{outside}, result.Interfaces...)
	for _, ip := range result.IPs {
		ip.Interface = current.Int(1)
	}
	return types.PrintResult(result, c.Conf.CNIVersion)
}

// ovsCheck fails like ADD if the device-info file is missing.
func ovsCheck(args *skel.CmdArgs) error {
	var c ovsConf
	if err := parse(args.StdinData, &c); err != nil {
		return err
	}
	_, err := c.info()
	return err
}

func ovsDel(args *skel.CmdArgs) error {
	var c ovsCache
	if err := load(ovsDir, args, &c); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if args.Netns == "" { // the kernel has moved the VF back
		c.Link = ""
	}
	return errors.Join(c.Conf.moveBack(c.Link), vsctl("--if-exists", "del-port", c.Port), os.Remove(cached(ovsDir, args)))
}
