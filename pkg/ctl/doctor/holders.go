package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/ctl/node"
)

func attachments(e *Evidence, list *findings) {
	if e.driverAway() && slices.ContainsFunc(e.Attachments, func(a node.Attachment) bool { return a.Claim != "" }) {
		list.add(Error, "cni-dra-driver does not run on this node: claims of its pods cannot be unprepared, so that these pods stay in Terminating",
			"start it: kubectl get pods -A -o wide -l app.kubernetes.io/name=cni-dra-driver lists its pods; its log says why it ends")
	}
	for _, a := range e.Attachments {
		name, state, why, remedy := a.Short(), a.State, a.Why, a.Verdict.Remedy
		level := Info // while ADD or DEL runs
		switch {
		case a.Verdict.Problem != "":
			level = Error
		case state == check.OK && len(a.Verdict.Warnings) > 0:
			level, state, why, remedy = Warning, "changed", a.Verdict.Warnings[0], "run devinfoctl check "+name
		case state == check.OK && why == "":
			continue
		case state == check.OK:
			state = "at ADD" // found no device
		case state == check.Unknown:
			level, remedy = Unknown, "run devinfoctl doctor as root, outside of containers"
		}
		if a.Pod != "" {
			name = "pod " + a.Pod + ", " + name
		}
		list.add(level, strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", name, state, why), ": "), remedy)
	}
}

func (e *Evidence) driverAway() bool { return e.Live != nil && e.Live.DriverAway }

// leases reports the leases that nobody will end.
func leases(e *Evidence, list *findings) {
	for _, c := range e.Unrecorded {
		why, remedy := "has no record of the claim in "+c.Driver, c.Of.EndCommand()
		if c.Aside != "" {
			why, remedy = "could not read its record and has set it aside as "+c.Aside, "delete its pods, detach what they leave, and remove that file"
		}
		list.add(Warning, fmt.Sprintf("claim %s: has leases of %s, but cni-dra-driver %s", c.Claim, strings.Join(c.Devices, ", "), why), remedy)
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

func holders(e *Evidence, list *findings) {
	all := e.holds()
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

func (e *Evidence) isVF(address string) bool {
	return slices.ContainsFunc(e.VFs, func(v VF) bool { return v.Address == address })
}
