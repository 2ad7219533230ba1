package inventory

import "maps"

// Idle are the rules, by index, that are no device's first: they have no effect on this node.
func (r Rules) Idle(decisions map[string]Decision) map[int]Rule {
	idle := map[int]Rule{}
	for n := range r.list {
		idle[n] = r.list[n].Rule
	}
	for c := range maps.Values(decisions) {
		delete(idle, c.Rule)
	}
	return idle
}
