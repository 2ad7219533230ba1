package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/view"
	"devinfo-cni.io/pkg/ctl/node"
)

func attachments(e *Evidence, list *findings) {
	if e.Live.DriverAway && slices.ContainsFunc(e.Attachments, func(a node.Attachment) bool { return a.Claim != "" }) {
		list.add("driver-away")
	}
	for _, a := range e.Attachments {
		name, state, why, rule := a.Short(), string(a.State), a.Why, "attachment-note" // while ADD or DEL runs
		switch {
		case a.Verdict.Problem != "":
			rule = "attachment"
		case a.State == check.OK && len(a.Verdict.Warnings) > 0:
			rule, why = "attachment-changed", a.Verdict.Warnings[0]
		case a.State == check.OK && why == "":
			continue
		case a.State == check.OK:
			state = "at ADD" // found no device
		case a.State == check.Unknown:
			rule = "attachment-unseen"
		}
		attachment := name
		if a.Pod != "" {
			attachment = "pod " + a.PodName() + ", " + name
		}
		list.add(rule, "attachment", attachment, "name", name, "why", why, "state", strings.TrimSuffix(state+": "+why, ": "), "remedy", a.Verdict.Remedy)
	}
}

// leases reports the leases that nobody will end.
func leases(e *Evidence, list *findings) {
	for _, c := range e.Unrecorded {
		rule, path := "lease-unrecorded", c.Driver
		if c.Aside != "" {
			rule, path = "lease-aside", c.Aside
		}
		list.add(rule, "claim", c.Claim, "devices", strings.Join(c.Devices, ", "), "path", path, "remedy", c.Of.EndCommand())
	}
}

// A hold is the use of a device by one holder, as an exclusive lease, an allocation of a device plugin or a lock of
// sriov-cni shows it.
type hold struct {
	pod string // namespace/name; "" = only the network namespace is known
	by  string // "DRA", "DRA driver sriov.example.com", "CNI", "claim shop/net", "device plugin example.com/vf" or "sriov-cni's lock"
	ns  string // path of the network namespace; "" = not known

	claimed bool // the kubelet lists a claim of the pod, which may still wait for it
}

func (h hold) String() string {
	if h.pod == "" {
		return h.by + " for " + h.ns
	}
	return "pod " + h.pod + " (" + h.by + ")"
}

// holds returns the holds of VFs, SFs and vDPA devices by name. A pod in a CNI network usually has a VF from a device
// plugin, so it has two holds of the VF, which do not contradict each other.
func (e *Evidence) holds() map[string][]hold {
	all, alone := map[string][]hold{}, map[string]bool{}
	for _, d := range e.Devices {
		alone[d.At.Name] = isCandidate(d)
	}
	add := func(h hold, devices ...string) {
		for _, device := range devices {
			if alone[device] {
				all[device] = append(all[device], h)
			}
		}
	}
	for _, a := range e.Attachments {
		by := "CNI"
		if a.Claim != "" {
			by = "DRA"
		}
		add(hold{pod: a.PodName(), by: by, ns: a.Netns}, a.Has...)
	}
	for _, c := range e.Unrecorded {
		add(hold{by: "claim " + c.Claim, ns: c.Of.Netns}, c.Has...)
	}
	for _, c := range e.Live.Claimed {
		by := "DRA" // cni-dra-driver, whose records may not be visible here
		if c.Driver != view.Driver {
			by += " driver " + c.Driver
		}
		add(hold{pod: c.Pod, by: by, claimed: true}, c.PCI...)
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

// quarrel reports whether two holds contradict each other. b comes after a in [Evidence.holds].
func quarrel(a, b hold) bool {
	if a.pod == "" || b.pod == "" {
		return a.ns != "" && b.ns != "" && a.ns != b.ns
	}
	waits := b.claimed && a.by == b.by
	return a.pod != b.pod && !waits || strings.HasPrefix(a.by, "DRA") && strings.HasPrefix(b.by, "device plugin")
}

func holders(e *Evidence, list *findings) {
	all := e.holds()
	for _, device := range slices.Sorted(maps.Keys(all)) {
		for n, a := range all[device] {
			rest := all[device][n+1:]
			if at := slices.IndexFunc(rest, func(b hold) bool { return quarrel(a, b) }); at >= 0 {
				list.add("two-holders", "device", device, "one", a.String(), "other", rest[at].String())
				break
			}
		}
	}
}

// knowsPods reports whether the kubelet has told which devices pods have. Old captures do not have Kubelet.
func (e *Evidence) knowsPods() bool { return e.Live.Kubelet || len(e.Live.Devices) > 0 }

// allocations reports what the kubelet has given to pods and the node has lost, for example since it was rebooted.
func allocations(e *Evidence, list *findings) {
	for _, g := range e.GivenGone {
		list.add("allocated-gone", "device", g.Device, "pod", g.Pod, "resource", g.Resource)
	}
}

// podOf returns the pod of a device's holds, or its network namespace; "" = no pod holds the device.
func podOf(holds []hold) string {
	var pod, ns string
	for _, h := range holds {
		pod, ns = cmp.Or(pod, h.pod), cmp.Or(ns, h.ns)
	}
	return cmp.Or(pod, ns)
}
