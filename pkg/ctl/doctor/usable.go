package doctor

import (
	"cmp"
	"slices"

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

func (e *Evidence) candidates() []*hostdev.Device {
	return slices.DeleteFunc(slices.Clone(e.Devices), func(d *hostdev.Device) bool { return !isCandidate(d) })
}

// free returns the devices of a list that no pod is known to have. Whoever has a vDPA device has the VF or SF below it too,
// and the other way round. An attachment without a lease that names a device uses it.
func (e *Evidence) free(list []*hostdev.Device) (free []*hostdev.Device) {
	used := map[*hostdev.Device]bool{}
	held, at := e.holds(), map[string]*hostdev.Device{}
	for _, d := range e.Devices {
		at[d.At.Name] = d
		used[d] = len(held[d.At.Name]) > 0
	}
	for _, a := range e.Attachments {
		if d := at[a.Device]; d != nil && !a.Left() {
			used[d] = true
		}
	}
	for _, d := range e.Devices { // each after its parent
		if up := d.Parent; up != nil && isCandidate(up) && used[d] {
			used[up] = true
		}
	}
	for _, d := range list {
		if !used[d] && (d.Parent == nil || !used[d.Parent] || !isCandidate(d.Parent)) {
			free = append(free, d)
		}
	}
	return free
}

// countUsable returns how many free devices the next pod can get. A VF whose interface is not here is none of them: it is in a
// namespace that doctor cannot see, or pods get what is on the VF.
func countUsable(e *Evidence) string {
	if e.Live == nil {
		return ""
	}
	number, unread, read := 0, false, map[string]bool{"": true}
	for _, c := range e.Live.Conditions {
		read[c.Name] = true
	}
	for _, d := range e.free(e.candidates()) {
		if !d.LacksInterface() || d.OnlyRDMA() {
			number++
			unread = unread || !read[d.IfName]
		}
	}
	text := Count(number, "free device") + ", usable"
	if !e.knowsPods() {
		text = Count(number, "device") + ", usable unless pods have them"
	}
	if unread {
		text += ", as far as their settings could be read"
	}
	return text
}

// Unusable returns why the next pod could not use a device of the node, and nothing if a pod may have it.
func (e *Evidence) Unusable(name string) (faults []settings.Fault) {
	judge := e.judge()
	for _, d := range e.free(e.candidates()) {
		for _, f := range judge(d) {
			is := d.At.Name == name || slices.ContainsFunc(d.Ports, func(p sysfs.Port) bool { return p.Name == name })
			if is && (f.Rule != settings.NoInterface || e.lost(d) != "") {
				faults = append(faults, f)
			}
		}
	}
	return faults
}

// judge returns a function that returns the rules that a free device breaks.
func (e *Evidence) judge() func(d *hostdev.Device) []settings.Fault {
	conditions, vfs, carry := map[string]settings.Condition{}, map[string]*settings.VFRecord{}, map[*hostdev.Device]bool{}
	if e.Live != nil {
		for _, c := range e.Live.Conditions {
			conditions[c.Device], conditions["net "+c.Name] = c, c
		}
	}
	for _, v := range e.VFs {
		if v.Known {
			vfs[v.Address] = &v.VFRecord
		}
	}
	for _, d := range e.Devices {
		carry[d.Parent] = true
	}
	return func(d *hostdev.Device) []settings.Fault {
		c, known := conditions["net "+d.IfName]
		if !known || d.IfName == "" {
			c = conditions[d.At.Name]
		}
		c.Of, c.VF, c.Carry, c.Closed = d, vfs[d.PCI], carry[d], e.Closed
		return settings.Usable(c)
	}
}

// usable finds free devices that the next pod could not use. sriov-cni does not restore what a pod has set on an interface,
// and neither does the kernel when it moves the interface back. Without a record of before, an administrator may have
// wanted it.
func usable(e *Evidence, list *findings) {
	judge := e.judge()
	for _, d := range e.free(e.candidates()) {
		for _, f := range judge(d) {
			rule := "unusable"
			switch {
			case f.Rule == settings.NoInterface:
				rule = e.lost(d)
			case f.Maybe:
				rule = "unusable-by-some"
			}
			if rule != "" {
				list.add(rule, "device", d.At.Name, "found", f.Found, "remedy", f.Remedy, "rule", f.Rule, "last", e.last(d.At.Name))
			}
		}
	}
}

// lost returns the rule for a free device whose interface is not on the host; "" = nothing tells that no pod has it.
func (e *Evidence) lost(d *hostdev.Device) string {
	if e.Live == nil {
		return ""
	}
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

// last returns the last pod of a free device that is known, as the end of a text.
func (e *Evidence) last(device string) string {
	if at := slices.IndexFunc(e.Attachments, func(a node.Attachment) bool { return a.Device == device && a.Left() }); at >= 0 {
		return "; the last pod known is " + cmp.Or(e.Attachments[at].Pod, e.Attachments[at].Netns)
	}
	if e.Live != nil {
		if at := slices.IndexFunc(e.Live.Locks, func(l journal.SRIOVLock) bool { return l.Device == device && l.Gone }); at >= 0 {
			return "; sriov-cni last gave it to " + e.Live.Locks[at].Netns
		}
	}
	return ""
}
