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
// A key of the configuration that the plugin does not have is an error here, where the real
// ones overlook it: a slip in an example is to be seen.
//
// STANDIN_SYS is a tree in the place of /sys, where interfaces have the names of real ones.
// STANDIN_SWITCH is devlink's name of the switch, such as netdevsim/netdevsim1, in the place
// of pci/ and the PF's address.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
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
