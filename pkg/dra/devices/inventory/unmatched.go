package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/listing"
)

// Unmatched returns the rules that no device meets, in their order, each with the reason.
func (r Rules) Unmatched(decisions []*Decision, links []listing.Interface) (list []state.UnmatchedRule) {
	if r == nil {
		return []state.UnmatchedRule{{Rule: "devices", Why: "the file has no rules; write a rule such as devices: [{pfNames: [ens1f0np0], sharing: exclusive}], or devices: [] to offer no devices"}}
	}
	used, known := map[int]bool{}, map[string][]string{} // used by index; values of devices by key
	for _, c := range decisions {
		used[c.Rule] = true
		for _, m := range matchers {
			for _, value := range m.of(&c.Device) {
				if value != "" {
					known[m.key] = append(known[m.key], value)
				}
			}
		}
	}
	for n := range r {
		if !used[n] && !r[n].elsewhere {
			list = append(list, explain(n, &r[n].Rule, known, links, failure(decisions, n)))
		}
	}
	return list
}

// failure returns why the expression of a rule fails for each device that reaches the rule. It returns "" if the
// expression has a result for one of them.
func failure(decisions []*Decision, rule int) (why string) {
	for _, c := range decisions {
		if err := c.failed[rule]; err != nil {
			why = err.Error()
		} else if c.Rule < 0 || c.Rule > rule {
			return ""
		}
	}
	return why
}

func explain(n int, r *Rule, known map[string][]string, links []listing.Interface, failure string) (unmatched state.UnmatchedRule) {
	var names, why []string
	for _, m := range matchers {
		values := m.values(r)
		if len(values) > 0 {
			names = append(names, m.key+": "+strings.Join(values, ", "))
		}
		for _, value := range values {
			if slices.Contains(known[m.key], value) {
				continue
			}
			text := missing(m.key, value, known, links)
			if near := config.Nearest(value, known[m.key]); near != "" {
				text += "; the nearest is " + near
				unmatched.Nearest = cmp.Or(unmatched.Nearest, near)
			}
			why = append(why, text)
		}
	}
	if r.Select != "" {
		names = append(names, "select")
	}
	unmatched.Rule = fmt.Sprintf("devices[%d] (%s)", n, strings.Join(names, "; "))
	unmatched.Why = cmp.Or(strings.Join(why, "; "), failure, "no device matches all of its keys, or an earlier rule already selects it")
	return unmatched
}

// missing describes a value that no device has.
func missing(key, value string, known map[string][]string, links []listing.Interface) string {
	n := slices.IndexFunc(links, func(l listing.Interface) bool { return l.Called(value) })
	switch {
	case key == "pciAddresses":
		return value + " is not on this node"
	case key == "drivers":
		return "no device has the driver " + value
	case key == "pfNames" && slices.Contains(known["ifNames"], value):
		return "no VF, SF or vDPA device is on " + value
	case n < 0:
		return "this node has no interface " + value
	case link.Represents(links[n].PortName):
		return value + " is a representor"
	case links[n].Info.Kind != "":
		return value + " is a " + links[n].Info.Kind
	}
	return value + " is not the interface of a device"
}
