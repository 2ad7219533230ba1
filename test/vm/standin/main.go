// Standin is in the place of plugins that cannot be built from Go modules here: sriov-cni,
// ovs-cni and rdma-cni. It is the one by whose name it is called (sriov, ovs or rdma), and
// does what a caller, a chained plugin and the kernel see of it, its oddities included. It
// is for the tests of this folder: nothing outside of them may be concluded of the plugins.
//
//   - sriov (of v2.10): the VF of deviceID goes into the pod and comes back as it was; VLAN,
//     MAC, spoof checking, trust and rates are set by the real PF. A VF on vfio-pci stays, and the
//     first DEL of it fails. It keeps a cache and a lock of the VF in /var/lib/cni/sriov.
//   - ovs: moves the VF too, and makes its representor a port of Open vSwitch's bridge. A VF
//     with a vDPA device stays. It reads the device-info file that it is told of, and fails
//     without it.
//   - rdma: takes the RDMA device out of the VF's directory, as in exclusive mode. No
//     emulated card has RDMA: it works only on a tree in the place of /sys.
//
// Interfaces are moved, and addresses given, by the real host-device.
//
// A key of the configuration that the plugin does not have is an error here, where the real
// ones overlook it: a slip in an example is to be seen.
//
// STANDIN_SYS is a tree in the place of /sys, where interfaces have the names of real ones.
// STANDIN_SWITCH is devlink's name of the switch, such as netdevsim/netdevsim1, in the place
// of pci/ and the PF's address.
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
	"github.com/containernetworking/cni/pkg/types"
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

// common are the keys that each of the plugins has, those that runtimes and Multus add
// among them.
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

// parse reads a configuration.
func parse(stdin []byte, conf any) error {
	dec := json.NewDecoder(bytes.NewReader(stdin))
	dec.DisallowUnknownFields()
	return dec.Decode(conf)
}

// runtime is a text of runtimeConfig; "" if it is not there.
func (c *common) runtime(key string) string {
	text, _ := c.RuntimeConfig[key].(string)
	return text
}

// hostDevice is the configuration by which host-device moves an interface; without one it is the IPAM
// plugin's alone.
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
	conf, _ = json.Marshal(all) // it has been JSON
	return plugin, conf
}

// move takes an interface into the pod, and gives it addresses; "" = there is none to move.
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

// moveBack undoes move.
func (c *common) moveBack(device string) error {
	plugin, conf := c.hostDevice(device)
	if plugin == "" {
		return nil
	}
	return invoke.DelegateDel(context.Background(), plugin, conf, nil)
}

// print prints the result in the version that the caller wants.
func (c *common) print(result *current.Result) error {
	return types.PrintResult(result, c.CNIVersion)
}

// save keeps a value for DEL in a directory.
func save(dir string, args *skel.CmdArgs, value any) error {
	data, err := json.Marshal(value)
	return errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(cached(dir, args), data, 0o600))
}

func cached(dir string, args *skel.CmdArgs) string {
	return filepath.Join(dir, args.ContainerID+"-"+args.IfName)
}

// load reads what save has kept.
func load(dir string, args *skel.CmdArgs, value any) error {
	data, err := os.ReadFile(cached(dir, args))
	if err != nil {
		return err
	}
	return json.Unmarshal(data, value)
}

// sys is where the plugins find /sys.
func sys() string { return cmp.Or(os.Getenv("STANDIN_SYS"), "/sys") }

func pciDir(address string) string { return filepath.Join(sys(), "bus/pci/devices", address) }

// A function is a VF, as /sys shows it.
type function struct {
	pf     string // address
	index  int
	uplink string // the PF's interface
	link   string // the VF's interface; "" if it has none
	driver string // "" if it has none
}

// vf looks a VF up.
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

// only is the one entry of a directory; "" if there is no such.
func only(dir string) string {
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 {
		return ""
	}
	return entries[0].Name()
}
