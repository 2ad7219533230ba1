package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/node"
)

func attachments(f *Evidence, list *findings) {
	if f.Live != nil && f.Live.Gate != "" && !f.DRA {
		list.add(Unknown, Count(len(f.Attachments), "attachment")+" of devinfo; "+f.Live.Gate+" is cni-dra-driver's, whose attachments are not visible in this pod",
			"run devinfoctl doctor on the node, and check that cni-dra-driver runs there: pods with claims can only be deleted while it runs; "+
				"if it was removed, remove its files too: set dra.uninstall=true, or run cni-dra-driver --uninstall")
	}
	if f.driverAway() && slices.ContainsFunc(f.Attachments, func(a node.Attachment) bool { return a.Claim != "" }) {
		list.add(Error, "cni-dra-driver does not run on this node: claims of its pods cannot be unprepared, so that these pods stay in Terminating",
			"start it: kubectl get pods -A -o wide -l app.kubernetes.io/name=cni-dra-driver lists its pods; its log says why it ends")
	}
	for _, a := range f.Attachments {
		name, state, why, remedy := a.Short(), a.State, a.Why, a.Verdict.Remedy
		level := levelOf(a)
		switch level {
		case OK:
			if why == "" {
				continue
			}
			level, state = Info, "at ADD" // found no device
		case Warning:
			state, why, remedy = "changed", a.Verdict.Warnings[0], "run devinfoctl check "+name
		case Unknown:
			remedy = "run devinfoctl doctor as root, outside of containers"
		}
		if a.Pod != "" {
			name = "pod " + a.Pod + ", " + name
		}
		list.add(level, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", name, state, why), ": "), remedy)
	}
}

func (e *Evidence) driverAway() bool { return e.Live != nil && e.Live.DriverAway }

// levelOf returns the level of an attachment's state. It is Info while ADD or DEL runs.
func levelOf(a node.Attachment) Level {
	switch {
	case a.Verdict.Problem != "":
		return Error
	case a.State == check.OK && len(a.Verdict.Warnings) > 0:
		return Warning
	case a.State == check.OK:
		return OK
	case a.State == check.Unknown:
		return Unknown
	}
	return Info
}

// files reports the files and leases that belong to no attachment.
func files(f *Evidence, list *findings) {
	for _, path := range f.Unowned {
		list.add(Info, path+": no attachment owns it", "remove it if it was left behind; other plugins keep files there too")
	}
	for _, path := range f.Stale {
		list.add(Warning, path+": is a lease without a recorded holder", "remove it: devinfoctl gc --yes")
	}
	for _, c := range f.Unrecorded {
		list.add(Warning, fmt.Sprintf("claim %s: has leases of %s, but cni-dra-driver has no record of the claim in %s", c.Claim, strings.Join(c.Devices, ", "), c.Driver), c.Of.EndCommand())
	}
}

// A hold is the use of a device by one holder, as an exclusive lease, an allocation of a device plugin or a lock of
// sriov-cni shows it.
type hold struct {
	pod string // namespace/name; "" = only the network namespace is known
	by  string // "DRA", "CNI", "claim shop/net", "device plugin example.com/vf" or "sriov-cni's lock"
	ns  string // path of the network namespace; "" = not known
}

func (h hold) String() string {
	switch {
	case h.pod == "":
		return h.by + " for " + h.ns
	case h.by == "":
		return "pod " + h.pod
	}
	return "pod " + h.pod + " (" + h.by + ")"
}

// holds returns the holds of VFs by address. A pod in a CNI network usually has a VF from a device plugin, so it
// has two holds of the VF, which do not contradict each other.
func (e *Evidence) holds() map[string][]hold {
	all := map[string][]hold{}
	add := func(h hold, devices ...string) {
		for _, device := range devices {
			if e.isVF(device) {
				all[device] = append(all[device], h)
			}
		}
	}
	for _, a := range e.Attachments {
		by := "CNI"
		if a.Claim != "" {
			by = "DRA"
		}
		add(hold{a.Pod, by, a.Netns}, a.Has...)
	}
	for _, c := range e.Unrecorded {
		add(hold{"", "claim " + c.Claim, c.Of.Netns}, c.Has...)
	}
	if e.Live == nil {
		return all
	}
	for _, d := range e.Live.Devices {
		add(hold{pod: d.Pod, by: "device plugin " + d.Resource}, d.Device)
	}
	for _, l := range e.Live.Locks {
		if !l.Gone {
			add(hold{by: "sriov-cni's lock", ns: l.Netns}, l.Device)
		}
	}
	return all
}

// quarrel reports whether two holds contradict each other.
func quarrel(a, b hold) bool {
	if a.pod == "" || b.pod == "" {
		return a.ns != "" && b.ns != "" && a.ns != b.ns
	}
	plugin := strings.HasPrefix(a.by, "device plugin")
	return a.pod != b.pod || plugin && b.by == "DRA" || a.by == "DRA" && strings.HasPrefix(b.by, "device plugin")
}

func holders(f *Evidence, list *findings) {
	all := f.holds()
	for _, device := range slices.Sorted(maps.Keys(all)) {
		for n, a := range all[device] {
			rest := all[device][n+1:]
			if at := slices.IndexFunc(rest, func(b hold) bool { return quarrel(a, b) }); at >= 0 {
				list.add(Error, fmt.Sprintf("%s: held by %s and by %s", device, a, rest[at]),
					"delete one of the two pods; then remove the VF from the device plugin's pool, or from the rules of the DRA driver")
				break
			}
		}
	}
}

// given finds VFs that a device plugin allocated to pods whose networks use other VFs.
func given(f *Evidence, list *findings) {
	if f.Live == nil {
		return
	}
	for _, d := range f.Live.Devices {
		var have []string
		known := f.isVF(d.Device)
		for _, a := range f.Attachments {
			if a.Pod != d.Pod || a.Claim != "" {
				continue
			}
			of := slices.Concat(a.Has, a.Shares)
			lock := func(l journal.SRIOVLock) bool { return l.Device == d.Device && l.Netns == a.Netns } // the pod uses it in a network without devinfo
			known = known && levelOf(a) != Info && !slices.Contains(of, d.Device) && !slices.ContainsFunc(f.Live.Locks, lock)
			have = append(have, slices.DeleteFunc(of, func(device string) bool { return !f.isVF(device) })...)
		}
		if known && have != nil {
			list.add(Warning, fmt.Sprintf("%s: device plugin %s allocated it to pod %s, whose networks use %s", d.Device, d.Resource, d.Pod, strings.Join(have, ", ")),
				"request as many devices of the resource in the pod as it has networks with that resourceName; applications must use DEVINFO_<interface>_PCI_ADDRESS, not PCIDEVICE_*")
		}
	}
}

func (e *Evidence) isVF(address string) bool {
	return slices.ContainsFunc(e.VFs, func(v VF) bool { return v.Address == address })
}

// noVLAN is the VLAN ID that IEEE 802.1Q reserves, so that no VF has it. mlx4 reports it for a VF without a VLAN: MLX4_VGT in
// include/linux/mlx4/device.h, mlx4_get_vf_config in drivers/net/ethernet/mellanox/mlx4/cmd.c.
const noVLAN = 4095

// setsMAC are the drivers of PFs that report only a MAC which was set on the PF, and take the zero MAC for none. Other drivers
// report the VF's own MAC (ice_get_vf_cfg in drivers/net/ethernet/intel/ice/ice_sriov.c, i40e_ndo_get_vf_config, ixgbe_ndo_get_vf_config,
// igb_ndo_get_vf_config, bnxt_get_vf_config) or give each VF one (mlx4, be2net, cxgb4).
var setsMAC = []string{
	"mlx5_core", // mlx5_eswitch_get_vport_config in drivers/net/ethernet/mellanox/mlx5/core/eswitch.c
	"hns3",      // hclge_get_vf_config in drivers/net/ethernet/hisilicon/hns3/hns3pf/hclge_main.c
}

// leftovers finds settings of earlier pods on free VFs, which PFs report in IFLA_VF_INFO (rtnl_fill_vfinfo in
// net/core/rtnetlink.c). A MAC address counts only for the drivers in setsMAC, and if another free VF of the PF has none.
func leftovers(f *Evidence, list *findings) {
	if f.unsettled(list) {
		return
	}
	held, bare := f.holds(), map[string]bool{}
	for _, v := range f.VFs {
		bare[v.PF] = bare[v.PF] || v.Known && v.MAC == "" && len(held[v.Address]) == 0
	}
	for _, v := range f.VFs {
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
func addresses(f *Evidence, list *findings) {
	if f.unsettled(list) {
		return
	}
	held, by := f.holds(), map[string][]VF{}
	for _, v := range f.VFs {
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
func drivers(f *Evidence, list *findings) {
	for _, v := range f.VFs {
		if v.Driver == "" {
			list.add(Warning, v.Address+": the VF has no driver", fmt.Sprintf("load the module of its driver and bind it: "+
				"echo 1 > /sys/bus/pci/devices/%s/sriov_drivers_autoprobe; echo %s > /sys/bus/pci/drivers_probe; for DPDK bind vfio-pci", v.PF, v.Address))
		}
	}
	// drivers/infiniband/hw/mlx5/main.c makes the RDMA devices, drivers/vfio/pci/vfio_pci.c gives VFs to user space.
	if there, known := f.module("mlx5_ib"); known && !there && slices.ContainsFunc(f.VFs, func(v VF) bool { return v.Driver == "mlx5_core" }) {
		list.add(Info, "the module mlx5_ib is not loaded: VFs of mlx5_core have no RDMA device", "modprobe mlx5_ib, if pods need RDMA")
	}
	if there, known := f.module("vfio_pci"); known && !there && len(f.VFs) > 0 {
		list.add(Info, "the module vfio_pci is not loaded: no VF can be given to DPDK or a VM", "modprobe vfio_pci, if pods need that")
	}
	for _, v := range f.VDPAs {
		if v.Driver == "" {
			remedy := "modprobe vhost_vdpa for VMs and DPDK, virtio_vdpa for an interface"
			if there, _ := f.module("vhost_vdpa"); there {
				remedy = "vhost_vdpa is loaded: echo " + v.VDPA + " > /sys/bus/vdpa/drivers/vhost_vdpa/bind; or modprobe virtio_vdpa for an interface"
			}
			list.add(Warning, v.VDPA+": the vDPA device has no driver", remedy)
		}
	}
}

// module reports whether a kernel module is loaded or built in.
func (e *Evidence) module(name string) (there, known bool) {
	if e.Live != nil {
		there, known = e.Live.Modules[name]
	}
	return there, known
}
