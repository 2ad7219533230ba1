package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink/nl"

	"devinfo-cni.io/pkg/host/hostdev"
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

// ownersSet are settings of VFs that owners also set on purpose, so that only a difference between the free VFs of a PF
// tells of an earlier pod. words are those of ip link set PF vf N that give a VF the setting. PFs report the settings in
// IFLA_VF_INFO (rtnl_fill_vfinfo in net/core/rtnetlink.c).
var ownersSet = []struct {
	words func(VF) string
	alone bool // a VF without others beside it is compared with a new one
}{
	{func(v VF) string {
		if v.VLAN == noVLAN {
			return "vlan 0"
		}
		return "vlan " + strconv.Itoa(v.VLAN)
	}, true},
	{func(v VF) string { return "trust " + onOff[v.Trust] }, true},
	{func(v VF) string { return fmt.Sprintf("min_tx_rate %d max_tx_rate %d", v.MinRate, v.MaxRate) }, true},
	{func(v VF) string { return "spoofchk " + onOff[v.SpoofCheck] }, false},
	{func(v VF) string {
		if v.LinkState == nl.IFLA_VF_LINK_STATE_ENABLE {
			return "state enable"
		}
		return "state auto" // the check "usable" reports disable
	}, true},
	{func(v VF) string {
		if slices.Contains(setsMAC, v.PFDriver) && v.MAC != "" {
			return "mac " + v.MAC
		}
		return "mac 00:00:00:00:00:00"
	}, false},
}

var onOff = map[bool]string{false: "off", true: "on"}

// spelt spells words of ip link as texts do, so that both are found.
var spelt = strings.NewReplacer("vlan ", "VLAN ", "mac ", "MAC ")

// leftovers finds settings of free VFs that the free VFs of the same PF do not have.
func leftovers(e *Evidence, list *findings) {
	if !e.knowsVFs() {
		list.add("settings-unseen")
	}
	used, beside := e.used(), map[string][]VF{}
	for _, v := range e.VFs {
		if !used[v.Address] {
			beside[v.PF] = append(beside[v.PF], v)
		}
	}
	for _, pf := range slices.Sorted(maps.Keys(beside)) {
		for _, v := range beside[pf] {
			var what, undo []string
			for _, s := range ownersSet {
				if most := usual(beside[pf], s.words, s.alone); most != "" && s.words(v) != most {
					what, undo = append(what, spelt.Replace(s.words(v))), append(undo, most)
				}
			}
			if what != nil {
				list.add("differs", "device", v.Address, "what", strings.Join(what, ", "), "pf", v.PFName, "index", strconv.Itoa(v.Index), "undo", strings.Join(undo, " "), "last", e.last(v.Address))
			}
		}
	}
}

// usual returns the setting that most VFs of a list have, "" = none. If alone is set, a VF without others beside it is
// compared with a new VF, and so are as many of each kind. A MAC is only unusual beside a VF without one, because owners
// give one to each VF.
func usual(list []VF, words func(VF) string, alone bool) string {
	fresh, number := words(VF{}), map[string]int{}
	for _, v := range list {
		number[words(v)]++
	}
	all := slices.SortedFunc(maps.Keys(number), func(a, b string) int { return number[b] - number[a] })
	tie := len(list) == 1 || len(all) > 1 && number[all[0]] == number[all[1]]
	switch isMAC := strings.HasPrefix(fresh, "mac "); {
	case isMAC && number[fresh] > 0, tie && alone:
		return fresh
	case isMAC, tie:
		return ""
	}
	return all[0]
}

// knowsVFs reports whether a PF has told the settings of its VFs, if there are VFs.
func (e *Evidence) knowsVFs() bool {
	return len(e.VFs) > 0 || !slices.ContainsFunc(e.Devices, func(d *hostdev.Device) bool { return d.Kind == hostdev.VF })
}

// addresses finds VFs with one MAC. The switch in a NIC forwards a frame by its MAC to one of its VFs (such as esw_add_uc_addr
// in drivers/net/ethernet/mellanox/mlx5/core/eswitch.c). A bond of a pod gives all its ports one MAC
// (bond_enslave in drivers/net/bonding/bond_main.c, unless fail_over_mac is set), so that its VFs must be of different PFs.
func addresses(e *Evidence, list *findings) {
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
			list.add("same-mac", "devices", strings.Join(names, " and "), "mac", mac, "pf", last.PFName, "index", strconv.Itoa(last.Index))
		}
	}
}
