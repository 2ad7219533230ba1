package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Counters keep a PF and what is on it apart: the PF's set, which has its name, has one
// counter, of which the PF takes all and each device on it one. The amount is more than
// any PF has VFs and SFs, so that the set stays the same whatever comes and goes.
const (
	functions = "functions"
	whole     = 1 << 16
)

// share is what a device takes of a PF's counter.
type share struct {
	of   string // the PF
	much int64
}

// count settles which PFs are offered beside what is on them, and what each takes. Such a
// PF is offered only if all that is on it is, too: nobody would keep the rest apart.
func (s Situation) count(decisions []Decision) {
	if !s.Counters {
		return
	}
	for n := range decisions {
		pf := &decisions[n]
		held := s.Ours[pf.Device.Name] == Exclusive
		if pf.Device.Kind != PF || !held && (pf.As != Exclusive || pf.Why != "") {
			continue
		}
		var on []*Decision
		for m := range decisions {
			if decisions[m].isBelow(pf.Device.Name) {
				on = append(on, &decisions[m])
			}
		}
		if bare := uncounted(on); bare != "" && !held {
			pf.Why = fmt.Sprintf("%s on it is not offered, and would lose its parent", bare)
			continue
		}
		s.divide(pf, on)
	}
}

// divide gives each its share, and says of what a claim holds that the other side is taken.
func (s Situation) divide(pf *Decision, on []*Decision) {
	if len(on) == 0 {
		return
	}
	pf.share = share{pf.Device.Name, whole}
	for _, c := range on {
		if c.Why != "" && s.Ours[c.Device.Name] == "" {
			continue
		}
		c.share = share{pf.Device.Name, 1}
		if s.Ours[pf.Device.Name] == Exclusive {
			c.Taken = pf.Device.Name
		}
		if s.Ours[c.Device.Name] != "" {
			pf.Taken = c.Device.Name
		}
	}
}

// uncounted names one of the devices that is neither offered nor below one that is; "" =
// there is none.
func uncounted(on []*Decision) string {
	for _, c := range on {
		offered := func(above *Decision) bool {
			return above.Why == "" && above.As == Exclusive && (above == c || above.isBelow(c.Device.Name))
		}
		if !slices.ContainsFunc(on, offered) {
			return c.Device.Name
		}
	}
	return ""
}

func (s share) consumption() []resourceapi.DeviceCounterConsumption {
	if s.of == "" {
		return nil
	}
	return []resourceapi.DeviceCounterConsumption{{CounterSet: s.of, Counters: counters(s.much)}}
}

func counters(much int64) map[string]resourceapi.Counter {
	return map[string]resourceapi.Counter{functions: {Value: *resource.NewQuantity(much, resource.DecimalSI)}}
}

// counterSlices hold the sets that devices consume from: a slice has devices or sets.
func counterSlices(devices Published) (list []Slice) {
	names := map[string]bool{}
	for _, d := range devices {
		for _, c := range d.ConsumesCounters {
			names[c.CounterSet] = true
		}
	}
	for part := range slices.Chunk(slices.SortedFunc(maps.Keys(names), cmp.Compare), resourceapi.ResourceSliceMaxCounterSets) {
		var s Slice
		for _, name := range part {
			s.SharedCounters = append(s.SharedCounters, resourceapi.CounterSet{Name: name, Counters: counters(whole)})
		}
		list = append(list, s)
	}
	return list
}
