package restore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"devinfo-cni.io/pkg/dra/devices/restore"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/test/difftest"
)

// What becomes of something that a pod leaves.
const (
	stays, ends = "stays", "ends" // at a reset

	moved    = "ended by the move" // back to the node
	setBack  = "set back"          // or else the device is withheld
	reported = "set back*"         // or else reported
	removed  = "removed"           // or else the device is withheld
	withheld = "**withheld**"      // while it is there
	left     = "**left**"          // neither seen nor removed
)

// leavings are what a pod can leave on its interface or device: each class of what the kernel reports, and each kind of
// reference to it. all are the settings of the class.
var leavings = []struct {
	what           string
	reset, without string
	source         string // file and function of the kernel
	all            []string
}{
	{"flags such as `noarp`, `promisc`", "ends; then " + setBack, setBack, "net/core/dev.c, `__dev_change_flags`",
		[]string{"noarp", "promisc", "allmulti", "multicast", "debug", "dynamic", "notrailers", "portsel", "automedia"}},
	{"`mtu`, `mac`, names and altnames", "ends; then " + setBack, setBack, "net/core/dev.c, `__dev_change_net_namespace`", []string{settings.MTU, settings.MAC, settings.Name, settings.AltNames}},
	{"other attributes of `ip link set`", "ends; then " + setBack, setBack, "net/core/rtnetlink.c, `do_setlink`", []string{"alias", "broadcast", "mode", "group", "txqueuelen", "protodown",
		"gso_max_size", "gso_max_segs", "gro_max_size", "gso_ipv4_max_size", "gro_ipv4_max_size"}},
	{"offloads of `ethtool -K`", "ends; then " + setBack, setBack, "net/ethtool/features.c, `ethnl_set_features`", []string{"features"}},
	{"rings, channels, RSS and others of ethtool; attributes of a newer kernel", "ends; then " + reported, reported, "net/ethtool/netlink.c, `ethtool_genl_ops`", nil},
	{"ntuple rules, more RSS contexts", ends, left, "net/ethtool/ioctl.c, `ethtool_set_rxnfc`, `ethtool_set_rxfh`", nil},
	{"NAPI settings", ends, left, "net/core/netdev-genl.c, `netdev_nl_napi_set_doit`", nil},
	{"shapers (net-shaper)", ends, left, "net/shaper/shaper.c, `net_shaper_flush_netdev`", nil},
	{"sysfs attributes such as gro_flush_timeout", ends, left, "net/core/net-sysfs.c, `gro_flush_timeout_store`", nil},
	{"DCB: PFC, ETS, DSCP trust", "not known", left, "net/dcb/dcbnl.c, `dcb_doit`", nil},
	{"XDP and tcx programs, also by a bpf_link", ends, removed, "net/core/dev.c, `dev_xdp_uninstall`; kernel/bpf/tcx.c, `tcx_uninstall`",
		[]string{"xdp", "xdpgeneric", "xdpoffload", "tcx-ingress", "tcx-egress"}},
	{"a macvlan, ipvlan or vlan in a namespace that a process or mount names", ends, removed,
		"drivers/net/macvlan.c, `macvlan_device_event`; drivers/net/ipvlan/ipvlan_main.c, `ipvlan_device_event`", []string{restore.Stacked}},
	{"a macvlan or ipvlan in a namespace that only a socket or descriptor in flight keeps", ends, withheld, "net/core/dev.c, `netdev_rx_handler_register`", nil},
	{"a vlan in such a namespace", ends, left, "net/8021q/vlan.c, `vlan_device_event`", nil},
	{"an open VFIO device, also in another pod", "waits until it is closed", withheld, "drivers/vfio/vfio_main.c, `vfio_unregister_group_dev`", []string{restore.Opened}},
	{"open verbs (`uverbs`), also in another pod", "waits until they are closed, or ends them (mlx5; not run)", withheld, "drivers/infiniband/core/uverbs_main.c, `ib_uverbs_remove_one`", nil},
	{"an open vhost-vdpa device, also in another pod", "never reset", withheld, "drivers/vhost/vdpa.c, `vhost_vdpa_open`", nil},
	{"a descriptor of these in flight", "the same", left, "net/core/scm.c, `scm_fp_copy`", nil},
	{"the name of an RDMA device, `rdma dev set name`", "a new name", left, "drivers/infiniband/core/nldev.c, `nldev_set_doit`", nil},
	{"the driver, driver_override", setBack, setBack, "drivers/pci/pci-driver.c, `pci_match_device`", []string{restore.Driver}},
	{"the interface, in a namespace that lives on", "waits for it", withheld, "net/core/dev.c, `default_device_exit_batch`", []string{restore.Away}},
	{"VLAN, trust, rate and others of the VF on its PF, by CNI plugins", stays + "; then " + setBack, setBack, "net/core/rtnetlink.c, `do_setvfinfo`",
		[]string{settings.VFMAC, settings.VFVLAN, settings.VFTrust, settings.VFSpoofCheck, settings.VFLinkState, settings.VFRate, settings.VFGUID}},
	{"qdiscs, filters, addresses, neighbours, routes, sysctls; a bond, bridge or tunnel with it", moved, moved, "net/core/dev.c, `__dev_change_net_namespace`", nil},
}

func TestPageSaysWhatPodCanLeave(t *testing.T) {
	table := "\n\n| a pod leaves | a reset | without one | kernel source |\n|---|---|---|---|\n"
	var all []string
	for _, l := range leavings {
		table += fmt.Sprintf("| %s | %s | %s | %s |\n", l.what, l.reset, l.without, l.source)
		all = append(all, l.all...)
	}
	difftest.Equal(t, slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(restore.SettingNames())))
	page := difftest.Read(t, "../../../../docs/dra/restore.md")
	if !strings.Contains(page, table+"\n") { // neither more nor less
		t.Errorf("docs/dra/restore.md does not have this table:\n%s", table)
	}
}
