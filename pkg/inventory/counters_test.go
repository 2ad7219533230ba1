package inventory_test

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/inventory"
)

// either names a PF and all that is on it.
const either = `devices:
- select: device.attributes["devinfo-cni.io"].kind in ["pf", "vf", "sf", "vdpa"]
  as: exclusive
`

// counting is an API server that keeps counters.
func counting(ours ...string) inventory.Situation {
	s := situation()
	s.Counters, s.Ours = true, map[string]inventory.As{}
	for _, name := range ours {
		s.Ours[name] = inventory.Exclusive
	}
	return s
}

func TestAPFIsOfferedWholeOnlyIfAllThatIsOnItIsOffered(t *testing.T) {
	devices := read(t, host(t, captured(t, "igb-sriov")))
	decide := func(configuration string, s inventory.Situation) []inventory.Decision {
		return inventory.Decide(devices, rules(t, configuration), s)
	}
	taken := counting()
	taken.Others = map[string]string{"0000:01:10.6": "pod ns/x has it"}
	for why, all := range map[string][]inventory.Decision{
		"they would lose their parent":                           decide(either, situation()),
		"pci-0000-01-10-6 on it is not offered, and would lose":  decide(either, taken),
		"pci-0000-01-10-0 on it is not offered, and would lose ": decide("devices: [{ifNames: [eth0], as: exclusive}]", counting()),
	} {
		if got := decision(t, all, pf0); !strings.Contains(got.Why, why) {
			t.Errorf("got %q, want %q", got.Why, why)
		}
		for _, s := range inventory.Slices(all, nil, nil) {
			for _, d := range s.Devices {
				if strings.HasPrefix(d.Name, "pci-0000-01-") && d.ConsumesCounters != nil {
					t.Errorf("%s consumes %v", d.Name, d.ConsumesCounters)
				}
			}
		}
	}
	all := decide(either, counting(vf0, pf1))
	if pf, vf := decision(t, all, pf1), decision(t, all, vf1); pf.Taken != "" || vf.Taken != pf1 || vf.Why != "" {
		t.Errorf("a claim holds the PF: %+v, %+v", pf, vf)
	}
}

// A change of what a claim holds is one of its counters too: it was published before the
// PF was named.
func TestWhatAClaimHoldsIsCounted(t *testing.T) {
	devices := read(t, host(t, captured(t, "igb-sriov")))
	vfs := "devices: [{pfNames: [eth1], as: exclusive}]"
	last := inventory.PublishedIn(inventory.Slices(inventory.Decide(devices, rules(t, vfs), counting()), nil, nil))
	if last[vf1].ConsumesCounters != nil {
		t.Fatalf("without its PF it consumes %v", last[vf1].ConsumesCounters)
	}
	s := counting(vf1)
	list := inventory.Slices(inventory.Decide(devices, rules(t, either), s), s.Ours, last)
	if now := inventory.PublishedIn(list)[vf1]; len(now.ConsumesCounters) != 1 || now.ConsumesCounters[0].CounterSet != pf1 {
		t.Errorf("got %+v", now)
	}
}

func TestCountersKeepTheLimits(t *testing.T) {
	list := inventory.Slices(inventory.Decide(read(t, many(t, 1000)), rules(t, either), counting()), nil, nil)
	sets, consumers := 0, 0
	for n, s := range list {
		if len(s.Devices) > 0 == (len(s.SharedCounters) > 0) || len(s.SharedCounters) > resourceapi.ResourceSliceMaxCounterSets ||
			len(s.Devices) > resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures {
			t.Errorf("slice %d has %d devices and %d counter sets", n, len(s.Devices), len(s.SharedCounters))
		}
		sets += len(s.SharedCounters)
		for _, d := range s.Devices {
			consumers += len(d.ConsumesCounters)
		}
	}
	if sets != 1 || consumers != 1001 {
		t.Errorf("%d sets, %d consumers", sets, consumers)
	}
}
