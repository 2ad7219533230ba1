package inventory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
)

const function = "pci-0000-3b-00-0" // of [capturetest.Ports]

// ports returns a host with a NIC of n ports, one of which has the default route, or an address.
func ports(t *testing.T, n int, uplink, used string) inventory.Host {
	t.Helper()
	h := host(t, capturetest.Ports("mlx4_core", n))
	h.Uplinks, h.Uses = []string{}, map[string]string{}
	if uplink != "" {
		h.Uplinks = append(h.Uplinks, uplink)
	}
	if used != "" {
		h.Uses[used] = "has the address 10.1.2.3/24"
	}
	return h
}

// The states of a port.
const (
	free      = "free"
	uplink    = "uplink"
	used      = "used"   // the host has an address on it
	bonded    = "bonded" // it is a port of a bond
	elsewhere = "elsewhere"
	claimed   = "claimed" // it is in a pod with an exclusive claim
	pooled    = "pooled"  // pods share it
	attached  = "attached"
)

// aPort is a port of the function 0000:3b:00.0, and the rule for it.
type aPort struct {
	state string
	rule  inventory.SharingMode // "" = none
}

// TestFunctionBelongsToOnePod generates functions with up to four ports: all with one or two, and some of the others.
func TestFunctionBelongsToOnePod(t *testing.T) {
	var all []aPort
	for _, state := range []string{free, uplink, used, bonded, elsewhere, claimed, pooled, attached} {
		for _, rule := range []inventory.SharingMode{"", inventory.Exclusive, inventory.Shared} {
			all = append(all, aPort{state, rule})
		}
	}
	k := &cards{t: t, rules: map[string]inventory.Rules{}}
	for _, a := range all {
		k.check(a)
		for _, b := range all {
			k.check(a, b)
		}
	}
	random := rand.New(rand.NewPCG(1, 0))
	for n := range 300 {
		card := make([]aPort, 3+n%2)
		for i := range card {
			card[i] = all[random.IntN(len(all))]
		}
		k.check(card...)
	}
	if k.offers < 400 {
		t.Errorf("%d devices were offered", k.offers)
	}
}

type cards struct {
	t      *testing.T
	rules  map[string]inventory.Rules
	offers int
}

func (k *cards) rulesOf(card []aPort) inventory.Rules {
	text := "devices:\n"
	for n, p := range card {
		if p.rule != "" { // not by ifNames, which would lift the check for addresses
			text += fmt.Sprintf("- {select: 'device.attributes[\"devinfo-cni.io\"].ifName == \"p%d\"', sharing: %s}\n", n+1, p.rule)
		}
	}
	if _, known := k.rules[text]; !known {
		k.rules[text] = rules(k.t, text)
	}
	return k.rules[text]
}

// check decides about one function. It skips states that leases exclude: one pod has the function, or pods share it.
func (k *cards) check(card ...aPort) {
	count := map[string]int{}
	for _, p := range card {
		count[p.state]++
	}
	if count[claimed]+count[attached] > 1 || count[claimed]+count[attached] > 0 && count[pooled] > 0 {
		return
	}
	text := capturetest.Ports("mlx4_core", len(card))
	whole := read(k.t, host(k.t, text))
	names := make([]string, len(card)) // of the devices
	for n := range card {
		at := slices.IndexFunc(whole, func(d inventory.Device) bool { return d.IfName == fmt.Sprint("p", n+1) })
		names[n] = whole[at].Name
	}
	s := input()
	s.Ours, s.Others = inventory.Published{}, map[string]string{}
	var hidden []string
	for n, p := range card {
		as := map[string]inventory.SharingMode{claimed: inventory.Exclusive, pooled: inventory.Shared}[p.state]
		if as != "" {
			s.Ours[names[n]] = k.published(card, whole, n, as)
		}
		if p.state == attached {
			s.Others["0000:3b:00.0"] = "pod ns/x has it"
		}
		if p.state == elsewhere || p.state == claimed || p.state == attached {
			hidden = append(hidden, fmt.Sprint("p", n+1))
		}
	}
	h := host(k.t, capturetest.Without(text, hidden...))
	h.Uplinks, h.Uses = []string{}, map[string]string{}
	for n := range h.Links {
		var port int
		_, _ = fmt.Sscanf(h.Links[n].Name, "p%d", &port)
		switch name := h.Links[n].Name; card[port-1].state {
		case uplink:
			h.Uplinks = append(h.Uplinks, name)
		case used:
			h.Uses[name] = "has the address 10.1.2.3/24"
		case bonded:
			h.Links[n].Master = "bond0"
		}
	}
	devices := read(k.t, h)
	for n, p := range card { // the driver adds a port that is in the pod of a claim
		if p.state == claimed && n > 0 {
			at := slices.IndexFunc(whole, func(d inventory.Device) bool { return d.Name == names[n] })
			devices = append(devices, whole[at])
		}
	}
	decisions := inventory.Decide(devices, k.rulesOf(card), s)
	k.oneHolder(card, names, decisions, s)
	k.nobodysPorts(card, names, decisions)
	k.notWithheldForNothing(card, names, decisions)
	k.stale(card, names, decisions, s)
	if why, err := inventory.Busy(h, names[0]); err != nil || why == "" {
		k.t.Errorf("%v: to bind it: %q, %v", card, why, err) // mlx4_core may have further ports anywhere
	}
}

// published returns a device as it is offered alone.
func (k *cards) published(card []aPort, whole []inventory.Device, n int, as inventory.SharingMode) (d resourceapi.Device) {
	alone := make([]aPort, len(card))
	alone[n].rule = as
	for _, d := range inventory.PublishedIn(inventory.Slices(inventory.Decide(whole, k.rulesOf(alone), input()), nil)) {
		return d
	}
	k.t.Fatalf("%v: port %d is not offered alone", card, n+1)
	return d
}

// uses returns how pods have or may get each port; "" = they do not.
func uses(names []string, decisions []inventory.Decision, s inventory.DecideInput) []inventory.SharingMode {
	list := make([]inventory.SharingMode, len(names))
	for _, c := range decisions {
		n := slices.Index(names, c.Device.Name)
		if d, held := s.Ours[c.Device.Name]; held {
			list[n] = inventory.Sharing(d)
		} else if c.Why == "" {
			list[n] = c.Sharing
		}
	}
	return list
}

// oneHolder checks that a function that one pod has or may get has no other user.
func (k *cards) oneHolder(card []aPort, names []string, decisions []inventory.Decision, s inventory.DecideInput) {
	k.t.Helper()
	used := slices.DeleteFunc(uses(names, decisions, s), func(as inventory.SharingMode) bool { return as == "" })
	k.offers += len(used)
	if slices.Contains(used, inventory.Exclusive) && len(used) > 1 {
		k.t.Errorf("%v: its ports are %v", card, used)
	}
	if slices.Contains(used, inventory.Exclusive) && len(s.Others) > 0 {
		k.t.Errorf("%v: offered, but another pod has it", card)
	}
}

// nobodysPorts checks that no pod may get what the host uses or nobody sees. The first port is the function itself.
func (k *cards) nobodysPorts(card []aPort, names []string, decisions []inventory.Decision) {
	k.t.Helper()
	for _, c := range decisions {
		n := slices.Index(names, c.Device.Name)
		its := []string{card[n].state}
		for _, p := range card {
			if n == 0 && c.Sharing == inventory.Exclusive && p.state != elsewhere {
				its = append(its, p.state)
			}
		}
		refused := []string{uplink, bonded, elsewhere}
		if c.Sharing == inventory.Exclusive {
			refused = append(refused, used)
		}
		if c.Why == "" && card[n].state != claimed && slices.ContainsFunc(its, func(s string) bool { return slices.Contains(refused, s) }) {
			k.t.Errorf("%v: %s is offered", card, c.Device.Name)
		}
	}
}

// notWithheldForNothing checks that a function that no pod has is offered if one of its ports can be.
func (k *cards) notWithheldForNothing(card []aPort, names []string, decisions []inventory.Decision) {
	k.t.Helper()
	offered, wanted := false, false
	for n, p := range card {
		hostHas := slices.ContainsFunc(card, func(p aPort) bool { return p.state == uplink || p.state == bonded || p.state == used })
		switch {
		case p.state == claimed || p.state == attached || p.state == pooled:
			return
		case p.state == free && p.rule == inventory.Shared, p.state == free && p.rule == inventory.Exclusive && (n > 0 || !hostHas):
			wanted = true
		}
	}
	for _, c := range decisions {
		offered = offered || c.Why == ""
	}
	if wanted && !offered {
		k.t.Errorf("%v: nothing is offered", card)
	}
}

// stale checks the offers after a claim or another pod got one of them.
func (k *cards) stale(card []aPort, names []string, decisions []inventory.Decision, s inventory.DecideInput) {
	k.t.Helper()
	for _, taken := range decisions {
		if _, held := s.Ours[taken.Device.Name]; held || taken.Why != "" {
			continue
		}
		now := inventory.DecideInput{Ours: inventory.Published{taken.Device.Name: {AllowMultipleAllocations: new(taken.Sharing == inventory.Shared)}}}
		for _, c := range decisions {
			both := taken.Sharing == inventory.Shared && c.Sharing == inventory.Shared
			if c.Device.Name != taken.Device.Name && !both && now.StillOffers(decisions, c.Device.Name) {
				k.t.Errorf("%v: %s is still offered after a claim got %s", card, c.Device.Name, taken.Device.Name)
			}
		}
		other := inventory.DecideInput{Others: map[string]string{"0000:3b:00.0": "pod ns/x has it"}}
		if taken.Sharing == inventory.Exclusive && other.StillOffers(decisions, taken.Device.Name) {
			k.t.Errorf("%v: %s is still offered after a pod got the function", card, taken.Device.Name)
		}
	}
}
