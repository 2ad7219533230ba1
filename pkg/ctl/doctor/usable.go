package doctor

import (
	"cmp"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/settings"
	"devinfo-cni.io/pkg/host/sysfs"
)

// isCandidate reports whether pods get such devices alone: VFs, SFs and vDPA devices.
func isCandidate(d *hostdev.Device) bool {
	return d.Kind == hostdev.VF || d.Kind == hostdev.VDPA || d.Kind == hostdev.SF && d.Number != nil
}

// used returns the names of devices that pods have. Whoever has a vDPA device has the VF or SF below it too. An attachment
// without a lease that names a device uses it.
func (e *Evidence) used() map[string]bool {
	used := map[string]bool{}
	for name := range e.holds() {
		used[name] = true
	}
	for _, a := range e.Attachments {
		used[a.Device] = used[a.Device] || !a.Left()
	}
	for _, d := range e.Devices { // each after its parent
		if used[d.At.Name] && d.Parent != nil {
			used[d.Parent.At.Name] = true
		}
	}
	return used
}

// free returns the VFs, SFs and vDPA devices that no pod is known to have. Whoever has a VF or SF has the vDPA devices on it.
func (e *Evidence) free() (free []*hostdev.Device) {
	used := e.used()
	for _, d := range e.Devices {
		below := d.Parent != nil && isCandidate(d.Parent) && used[d.Parent.At.Name]
		if isCandidate(d) && !used[d.At.Name] && !below {
			free = append(free, d)
		}
	}
	return free
}

// Unusable returns why the next pod could not use a device of the node, each reason with its remedy, and nothing if a pod may
// have it.
func (e *Evidence) Unusable(name string) (why []string) {
	for _, f := range e.faults() {
		if f.of.At.Name == name || slices.ContainsFunc(f.of.Ports, func(p sysfs.Port) bool { return p.Name == name }) {
			why = append(why, f.Found+" ("+Rules.Of(f.rule, "remedy", f.Remedy).Remedy+")")
		}
	}
	return why
}

// A fault is one reason why the next pod could not use a free device.
type fault struct {
	settings.Fault
	of   *hostdev.Device
	rule string // of [Rules]
}

// faults returns what is wrong with free devices. sriov-cni does not restore what a pod has set on an interface, and neither
// does the kernel when it moves the interface back. Without a record of before, an administrator may have wanted it.
func (e *Evidence) faults() (list []fault) {
	conditions, vfs, carry := map[string]settings.Condition{}, map[string]*settings.VFRecord{}, map[*hostdev.Device]bool{}
	for _, c := range e.Live.Conditions {
		conditions[c.Device], conditions["net "+c.Name] = c, c
	}
	for _, v := range e.VFs {
		vfs[v.Address] = &v.VFRecord
	}
	for _, d := range e.Devices {
		carry[d.Parent] = true
	}
	for _, d := range e.free() {
		c, known := conditions["net "+d.IfName]
		if !known || d.IfName == "" {
			c = conditions[d.At.Name]
		}
		c.Of, c.VF, c.Carry, c.Closed = d, vfs[d.PCI], carry[d], e.Closed
		for _, f := range settings.Usable(c) {
			rule := "unusable"
			switch {
			case f.Rule == settings.NoInterface:
				rule = e.lost(d)
			case f.Maybe:
				rule = "unusable-by-some"
			}
			if rule != "" {
				list = append(list, fault{f, d, rule})
			}
		}
	}
	return list
}

func usable(e *Evidence, list *findings) {
	for _, f := range e.faults() {
		device := f.of.At.Name
		list.add(f.rule, "device", device, "found", f.Found, "remedy", f.Remedy, "rule", f.Rule, "last", e.last(device))
	}
	var unread []string
	for _, d := range e.free() {
		read := func(c settings.Condition) bool { return c.Name == d.IfName }
		if !e.Live.None && d.IfName != "" && !slices.ContainsFunc(e.Live.Conditions, read) {
			unread = append(unread, d.IfName)
		}
		for _, r := range e.RDMA { // rxe and siw have no parent, and neither has erdma
			if r.Device == "" && r.Netdev != "" && r.Netdev == d.IfName && !slices.Contains(d.RDMA.Devices, r.Name) {
				list.add("soft-rdma", "device", d.At.Name, "interface", d.IfName, "rdma", r.Name)
			}
		}
	}
	if unread != nil {
		list.add("interfaces-unread", "interfaces", strings.Join(unread, ", "))
	}
}

// lost returns the rule for a free device whose interface is not on the host; "" = nothing tells that no pod has it.
func (e *Evidence) lost(d *hostdev.Device) string {
	elsewhere := slices.ContainsFunc(e.Live.Conditions, func(c settings.Condition) bool { return c.Device == d.At.Name && c.Elsewhere != "" })
	switch {
	case elsewhere && e.Live.Kubelet:
		return "interface-elsewhere"
	case elsewhere || e.Live.Blind && !e.Live.Kubelet:
		return ""
	case e.Live.Blind:
		return "interface-unseen"
	}
	return "lost-interface"
}

// last returns the last pod of a free device that is known, as the end of a text. Only former pods are known of one.
func (e *Evidence) last(device string) string {
	if at := slices.IndexFunc(e.Attachments, func(a node.Attachment) bool { return a.Device == device }); at >= 0 {
		return "; the last pod known is " + cmp.Or(e.Attachments[at].PodName(), e.Attachments[at].Netns)
	}
	if at := slices.IndexFunc(e.Live.Locks, func(l journal.SRIOVLock) bool { return l.Device == device }); at >= 0 {
		return "; sriov-cni last gave it to " + e.Live.Locks[at].Netns
	}
	return ""
}
