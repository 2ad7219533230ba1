// Sriov is a stand-in for the CNI plugin sriov of k8snetworkplumbingwg/sriov-cni, for the
// tests of test/vm: that plugin cannot be built from a module of the proxy's. It does to a
// VF what v2.10 of the plugin does, and in its order, as far as agents and other plugins
// see anything of it:
//
//   - The VF is named by deviceID, at the top level of the configuration, and by no
//     runtimeConfig. Its PF must have an interface in physfn/net, so no virtio VF will do.
//   - ADD sets VLAN and MAC through the PF, moves the interface, and brings it up. A VF that
//     is on vfio-pci stays where it is; the result names its interface all the same.
//   - A lock below /var/lib/cni/sriov/pci names the network namespace of each VF; ADD refuses
//     a VF whose lock names one that exists. A cache beside it has what DEL needs.
//   - DEL restores the name, MAC and MTU of the interface, the VLAN if ADD set one, and the
//     MAC that the PF has for the VF. Without its cache it succeeds and does nothing.
//   - What DEL does not do right: it drops its cache even when it fails; it does not remember
//     that a VF is on vfio-pci, and fails once for want of an interface; without a network
//     namespace it restores nothing, and leaves the lock.
//
// Of the configuration it knows deviceID, vlan and runtimeConfig.mac. There is no IPAM, and
// no spoof check, trust, rate or link state.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ns"
)

func main() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: nothing, GC: nothing, Status: nothing}, version.All, "sriov stand-in")
}

// conf is the plugin's configuration.
type conf struct {
	types.PluginConf
	DeviceID      string
	VLAN          *int
	RuntimeConfig struct{ MAC string }
}

func add(args *skel.CmdArgs) error {
	var c conf
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return err
	}
	if c.DeviceID == "" {
		return errors.New("deviceID: the PCI address of a VF is required")
	}
	v, err := find(c.DeviceID)
	if err != nil {
		return err
	}
	unlock, err := lock(c.DeviceID)
	if err != nil {
		return err
	}
	defer unlock()
	if holder := allocated(c.DeviceID); holder != "" {
		return fmt.Errorf("pci address %s is already allocated to %s", c.DeviceID, holder)
	}
	netns, err := ns.GetNS(args.Netns)
	if err != nil {
		return err
	}
	defer netns.Close()
	was, err := v.state()
	if err != nil {
		return err
	}
	if err := errors.Join(v.configure(c.VLAN, c.RuntimeConfig.MAC), v.move(netns, args.IfName, c.RuntimeConfig.MAC)); err != nil {
		return errors.Join(err, v.giveBack(netns, args.IfName, was), v.reset(was, c.VLAN != nil))
	}
	note := note{DeviceID: c.DeviceID, VLAN: c.VLAN != nil, Was: was}
	if err := errors.Join(note.save(args), allocate(c.DeviceID, args.Netns)); err != nil {
		return err
	}
	result := &current.Result{CNIVersion: current.ImplementedSpecVersion, Interfaces: []*current.Interface{{
		Name: args.IfName, Sandbox: args.Netns, Mtu: was.MTU, Mac: cmp.Or(c.RuntimeConfig.MAC, was.MAC, was.AdminMAC),
	}}}
	return types.PrintResult(result, c.CNIVersion)
}

func del(args *skel.CmdArgs) error {
	n, ok, err := recall(args)
	if !ok || err != nil {
		return err
	}
	unlock, err := lock(n.DeviceID)
	if err != nil {
		return err
	}
	defer unlock()
	defer forget(args)
	if args.Netns == "" {
		return nil
	}
	v, err := find(n.DeviceID)
	if err != nil {
		return fmt.Errorf("error obtaining VF ID: %w", err)
	}
	if err := v.reset(n.Was, n.VLAN); err != nil {
		return err
	}
	netns, err := ns.GetNS(args.Netns)
	if gone := (ns.NSPathNotExistErr{}); errors.As(err, &gone) {
		return nil
	} else if err != nil {
		return err
	}
	defer netns.Close()
	if err := v.release(netns, args.IfName, n.Was); err != nil {
		return err
	}
	return release(n.DeviceID)
}
