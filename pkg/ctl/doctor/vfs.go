package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/host/nic"
	"devinfo-cni.io/pkg/host/settings"
)

// noVLAN is the VLAN ID that IEEE 802.1Q reserves, so that no VF has it. mlx4 reports it for a VF without a VLAN: MLX4_VGT in
// include/linux/mlx4/device.h, mlx4_get_vf_config in drivers/net/ethernet/mellanox/mlx4/cmd.c.
const noVLAN = 4095

// setsMAC are the drivers of PFs that report only a MAC which was set on the PF, and take the zero MAC for none. Other drivers
// report the VF's own MAC (ice_get_vf_cfg in drivers/net/ethernet/intel/ice/ice_sriov.c, i40e_ndo_get_vf_config in
// intel/i40e/i40e_virtchnl_pf.c, ixgbe_ndo_get_vf_config in intel/ixgbe/ixgbe_sriov.c) or give each VF one (mlx4_get_vf_config).
var setsMAC = []string{
	// mlx5_eswitch_get_vport_config in drivers/net/ethernet/mellanox/mlx5/core/eswitch.c; in later kernels (2025) it asks the
	// device for the permanent address, which the VF cannot change.
	"mlx5_core",
	"hns3", // hclge_get_vf_config and hns3_nic_set_vf_mac in drivers/net/ethernet/hisilicon/hns3
}

// leftovers finds settings of earlier pods on free VFs, which PFs report in IFLA_VF_INFO (rtnl_fill_vfinfo in
// net/core/rtnetlink.c). A MAC address counts only for the drivers in setsMAC, and if another free VF of the PF has none.
func leftovers(e *Evidence, list *findings) {
	held, bare := e.holds(), map[string]bool{}
	e.spoilt(held, list)
	if e.unsettled(list) {
		return
	}
	for _, v := range e.VFs {
		bare[v.PF] = bare[v.PF] || v.Known && v.MAC == "" && len(held[v.Address]) == 0
	}
	for _, v := range e.VFs {
		if len(held[v.Address]) > 0 || !v.Known {
			continue
		}
		var left, undo []string
		add := func(what, how string) { left, undo = append(left, what), append(undo, how) }
		if v.VLAN != 0 && v.VLAN != noVLAN {
			add(fmt.Sprintf("VLAN %d", v.VLAN), "vlan 0")
		}
		if v.Trust {
			add("trust", "trust off")
		}
		if v.MAC != "" && slices.Contains(setsMAC, v.PFDriver) && (bare[v.PF] || len(left) > 0) {
			add("MAC "+v.MAC, "mac 00:00:00:00:00:00")
		}
		if len(left) > 0 {
			list.add(Warning, v.Address+": the VF is free, but still has "+strings.Join(left, ", "), fmt.Sprintf("ip link set %s vf %d %s", v.PFName, v.Index, strings.Join(undo, " ")))
		}
	}
}

// spoilt finds free VFs whose interfaces have settings that stop traffic. sriov-cni does not restore them, and neither
// does the kernel when it moves an interface back. Without a record of before, an administrator may have wanted them.
func (e *Evidence) spoilt(held map[string][]hold, list *findings) {
	if e.Live == nil {
		return
	}
	for _, c := range e.Live.Conditions {
		if !e.isVF(c.Device) || len(held[c.Device]) > 0 {
			continue
		}
		var found, remedies []string
		for _, f := range settings.Usable(c) {
			found, remedies = append(found, f.Found), append(remedies, f.Remedy)
		}
		if found != nil {
			list.add(Warning, fmt.Sprintf("%s: the VF is free, but its interface %s has %s", c.Device, c.Name, strings.Join(found, ", ")),
				"unless an administrator wants this, "+strings.Join(remedies, "; "))
		}
	}
}

// unsettled reports whether the settings of all VFs are unknown, and adds a finding in that case.
func (e *Evidence) unsettled(list *findings) bool {
	switch {
	case len(e.VFs) == 0 || slices.ContainsFunc(e.VFs, func(v VF) bool { return v.Known }):
		return false
	case e.Live == nil:
		list.unseen("the settings of VFs")
	default:
		list.add(Unknown, "the PFs do not report the settings of their VFs", "run devinfoctl doctor in the host's network namespace")
	}
	return true
}

// addresses finds VFs with one MAC. The switch in a NIC forwards a frame by its MAC to one of its VFs (such as esw_add_uc_addr
// in drivers/net/ethernet/mellanox/mlx5/core/eswitch.c). A bond of a pod gives all its ports one MAC
// (bond_enslave in drivers/net/bonding/bond_main.c, unless fail_over_mac is set), so that its VFs must be of different PFs.
func addresses(e *Evidence, list *findings) {
	if e.unsettled(list) {
		return
	}
	held, by := e.holds(), map[string][]VF{}
	for _, v := range e.VFs {
		if v.MAC != "" {
			by[v.MAC] = append(by[v.MAC], v)
		}
	}
	for _, mac := range slices.Sorted(maps.Keys(by)) {
		var names []string
		pfs, pods := map[string]bool{}, map[string]bool{}
		for _, v := range by[mac] {
			names, pfs[v.PF] = append(names, v.Address), true
			pods[podOf(held[v.Address])] = true
		}
		last := by[mac][len(names)-1]
		if isBond := len(pfs) == len(names) && len(pods) == 1 && !pods[""]; len(names) > 1 && !isBond {
			list.add(Error, strings.Join(names, " and ")+" have the same MAC, "+mac,
				fmt.Sprintf("give one VF its own MAC: ip link set %s vf %d mac MAC", last.PFName, last.Index))
		}
	}
}

// podOf returns the pod of a device's holds, or its network namespace; "" = no pod holds the device.
func podOf(holds []hold) (pod string) {
	for _, h := range holds {
		pod = cmp.Or(pod, h.pod)
	}
	for _, h := range holds {
		pod = cmp.Or(pod, h.ns)
	}
	return pod
}

// drivers finds devices without a driver. The kernel binds a VF to a loaded driver unless sriov_drivers_autoprobe of its PF
// is 0 (pci_device_can_probe in drivers/pci/pci-driver.c), and a vDPA device when a driver is loaded (drivers/vdpa/vdpa.c).
func drivers(e *Evidence, list *findings) {
	for _, v := range e.VFs {
		if v.Driver == "" {
			list.add(Warning, v.Address+": the VF has no driver", fmt.Sprintf("load the module of its driver and bind it: "+
				"echo 1 > /sys/bus/pci/devices/%s/sriov_drivers_autoprobe; echo %s > /sys/bus/pci/drivers_probe; for DPDK bind vfio-pci", v.PF, v.Address))
		}
	}
	for _, v := range e.VDPAs {
		if v.Driver == "" {
			list.add(Warning, v.VDPA+": the vDPA device has no driver", "modprobe vhost_vdpa for VMs and DPDK, virtio_vdpa for an interface; "+
				"if vhost_vdpa is loaded: echo "+v.VDPA+" > /sys/bus/vdpa/drivers/vhost_vdpa/bind")
		}
	}
}

// cards tells which NICs of the node devinfo knows, and how it was tried on them.
func cards(e *Evidence, list *findings) {
	for _, card := range e.Cards {
		remedy := nic.Remedy
		if card.OnCard {
			remedy = ""
		}
		list.add(Info, card.Text, remedy)
	}
}
