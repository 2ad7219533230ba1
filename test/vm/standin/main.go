// Standin replaces plugins that cannot be built from Go modules here: sriov-cni, ovs-cni and rdma-cni. Its name (sriov,
// ovs or rdma) selects the plugin. It has the effects of the plugin that a caller, a chained plugin and the kernel can
// see, including known defects. It is only for the tests in this folder, and says nothing about the real plugins.
//
//   - sriov (v2.10) moves the VF of deviceID into the pod, and restores it. The real PF sets the VLAN. A VF on vfio-pci
//     is not moved, and its first DEL fails. /var/lib/cni/sriov has a cache and a lock of the VF.
//   - ovs also moves the VF, and adds its representor to the bridge of Open vSwitch. A VF with a vDPA device is not
//     moved. It reads the device-info file at the path that it gets, and fails if the file is missing.
//   - rdma removes the RDMA device from the VF's directory, as in exclusive mode. It only works on a tree that replaces
//     /sys, because no emulated card has RDMA.
//
// The real host-device moves interfaces and assigns addresses.
//
// A key of the configuration that the plugin does not know is an error, so that mistakes in examples are found. The
// real plugins ignore such keys.
//
// STANDIN_SYS is a tree that replaces /sys, where interfaces have the names of real ones. STANDIN_SWITCH is devlink's
// handle of the switch, such as netdevsim/netdevsim1, which replaces pci/ and the PF's address.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	plugins := map[string]skel.CNIFuncs{
		"sriov": {Add: sriovAdd, Check: nothing, Del: sriovDel, GC: nothing, Status: nothing},
		"ovs":   {Add: ovsAdd, Check: ovsCheck, Del: ovsDel, GC: nothing, Status: nothing},
		"rdma":  {Add: rdmaAdd, Check: nothing, Del: rdmaDel, GC: nothing, Status: nothing},
	}
	name := filepath.Base(os.Args[0])
	plugin, ok := plugins[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: call it sriov, ovs or rdma\n", name)
		os.Exit(2)
	}
	skel.PluginMainFuncs(plugin, version.All, "a stand-in for "+name)
}

func nothing(*skel.CmdArgs) error { return nil }

// common are the keys of all these plugins, including the keys that runtimes and Multus add.
type common struct {
	CNIVersion    string         `json:"cniVersion"`
	Name          string         `json:"name"`
	Type          string         `json:"type"`
	Capabilities  map[string]any `json:"capabilities,omitempty"`
	RuntimeConfig map[string]any `json:"runtimeConfig,omitempty"`
	PrevResult    map[string]any `json:"prevResult,omitempty"`
	Args          map[string]any `json:"args,omitempty"`
	IPAM          map[string]any `json:"ipam,omitempty"`
	DeviceID      string         `json:"deviceID"`
	PCIBusID      string         `json:"pciBusID,omitempty"`
}

// parse decodes a configuration. Unknown keys are errors.
func parse(stdin []byte, conf any) error {
	dec := json.NewDecoder(bytes.NewReader(stdin))
	dec.DisallowUnknownFields()
	return dec.Decode(conf)
}

// hostDevice returns the plugin and the configuration that move an interface. Without an interface it is the IPAM
// plugin alone.
func (c *common) hostDevice(device string) (plugin string, conf []byte) {
	ipam, _ := c.IPAM["type"].(string)
	all := map[string]any{"cniVersion": c.CNIVersion, "name": c.Name, "device": device}
	if ipam != "" {
		all["ipam"] = c.IPAM
	}
	plugin = ipam
	if device != "" {
		plugin = "host-device"
	}
	all["type"] = plugin
	conf, _ = json.Marshal(all) // decoded from JSON before
	return plugin, conf
}

// move moves an interface into the pod, and assigns addresses. If device is "" it moves no interface.
func (c *common) move(args *skel.CmdArgs, device string) (*current.Result, error) {
	inside := &current.Interface{Name: args.IfName, Sandbox: args.Netns}
	plugin, conf := c.hostDevice(device)
	if plugin == "" {
		return &current.Result{Interfaces: []*current.Interface{inside}}, nil
	}
	answer, err := invoke.DelegateAdd(context.Background(), plugin, conf, nil)
	if err != nil {
		return nil, err
	}
	result, err := current.NewResultFromResult(answer)
	if err == nil && device == "" {
		result.Interfaces = []*current.Interface{inside}
		for _, ip := range result.IPs {
			ip.Interface = current.Int(0)
		}
	}
	return result, err
}

func (c *common) moveBack(device string) error {
	plugin, conf := c.hostDevice(device)
	if plugin == "" {
		return nil
	}
	return invoke.DelegateDel(context.Background(), plugin, conf, nil)
}

// save stores a value for DEL in a directory.
func save(dir string, args *skel.CmdArgs, value any) error {
	data, err := json.Marshal(value)
	return errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(cached(dir, args), data, 0o600))
}

func cached(dir string, args *skel.CmdArgs) string {
	return filepath.Join(dir, args.ContainerID+"-"+args.IfName)
}

// load reads a value that save has stored.
func load(dir string, args *skel.CmdArgs, value any) error {
	data, err := os.ReadFile(cached(dir, args))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, value)
}

// sys returns the directory that the plugins use as /sys.
func sys() string { return cmp.Or(os.Getenv("STANDIN_SYS"), "/sys") }

func pciDir(address string) string { return filepath.Join(sys(), "bus/pci/devices", address) }

// A function is a VF in /sys.
type function struct {
	pf     string // PCI address of the PF
	index  int
	uplink string // interface of the PF
	link   string // interface of the VF; "" = none
	driver string // "" = none
}

// vf reads a VF in /sys.
func vf(address string) (f function, err error) {
	dir := pciDir(address)
	physfn, err := filepath.EvalSymlinks(filepath.Join(dir, "physfn"))
	if address == "" || err != nil {
		return f, fmt.Errorf("deviceID %q is no VF: %w", address, err)
	}
	f = function{pf: filepath.Base(physfn), index: -1, uplink: only(physfn + "/net"), link: only(dir + "/net")}
	virtfns, _ := filepath.Glob(filepath.Join(physfn, "virtfn*"))
	for _, v := range virtfns {
		if target, err := os.Readlink(v); err == nil && filepath.Base(target) == address {
			f.index, _ = strconv.Atoi(strings.TrimPrefix(filepath.Base(v), "virtfn"))
		}
	}
	driver, _ := os.Readlink(filepath.Join(dir, "driver"))
	f.driver = filepath.Base(driver)
	if f.index < 0 {
		return f, fmt.Errorf("%s: not among the VFs of %s", address, f.pf)
	}
	return f, nil
}

// only returns the only entry of a directory; "" if it has none or several.
func only(dir string) string {
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		return ""
	}
	return entries[0].Name()
}
