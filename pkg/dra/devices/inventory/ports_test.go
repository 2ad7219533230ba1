package inventory_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	resourceapi "k8s.io/api/resource/v1"

	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/dra/devices/inventory"
	"devinfo-cni.io/pkg/host/capturefile/capturetest"
	"devinfo-cni.io/pkg/host/listing"
)

const function = "pci-0000-3b-00-0" // of [capturetest.Ports]

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
	rule  journal.SharingMode // "" = none
}

// TestFunctionBelongsToOnePod generates functions with up to four ports: all with one or two, and some of the others.
func TestFunctionBelongsToOnePod(t *testing.T) {
	var all []aPort
	for _, state := range []string{free, uplink, used, bonded, elsewhere, claimed, pooled, attached} {
		for _, rule := range []journal.SharingMode{"", journal.Exclusive, journal.Shared} {
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
	k.t.Helper()
	count := map[string]int{}
	for _, p := range card {
		count[p.state]++
	}
	if owners := count[claimed] + count[attached]; owners > 1 || owners > 0 && count[pooled] > 0 {
		return
	}
	h, devices, names, s := k.node(card)
	decisions := inventory.Decide(devices, k.rulesOf(card), s)
	if why, err := inventory.Busy(h, function); err != nil || why == "" {
		k.t.Errorf("%v: to bind it: %q, %v", card, why, err) // mlx4_core may have further ports anywhere
	}
	needed := count[uplink]+count[bonded] > 0 // by the host, with all its ports
	users, shared := 0, true                  // pods that have a port or may get it
	var one, pool int                         // ports that must be offered: one of them, and all of them
	for _, c := range decisions {
		n := slices.Index(names, c.Device.Name)
		p, as := card[n], c.Sharing
		d, held := s.Ours[c.Device.Name]
		if held {
			as = inventory.Sharing(d)
		}
		switch {
		case p.state == free && p.rule == journal.Shared:
			pool++
		case p.state == free && p.rule == journal.Exclusive && !needed && (n > 0 || count[used] == 0):
			one = 1
		}
		if !held && c.Why != "" {
			continue
		}
		users++
		shared = shared && as == journal.Shared
		exclusive := !held && as == journal.Exclusive
		switch {
		case !held && slices.Contains([]string{uplink, bonded, elsewhere}, p.state), exclusive && p.state == used, exclusive && (needed || n == 0 && count[used] > 0):
			k.t.Errorf("%v: %s is offered as %s", card, c.Device.Name, as)
		case exclusive && count[attached] > 0:
			k.t.Errorf("%v: %s is offered, but another pod has it", card, c.Device.Name)
		case !held:
			k.stale(card, decisions, c)
		}
	}
	if users > 1 && !shared {
		k.t.Errorf("%v: %d pods may have its ports", card, users)
	}
	if wanted := max(one, pool); users < wanted && count[attached]+count[claimed] == 0 {
		k.t.Errorf("%v: %d of %d ports are offered", card, users, wanted)
	}
	k.offers += users
}

// node returns a host with the function, its devices, their names by port, and the state for the decision.
func (k *cards) node(card []aPort) (h inventory.Host, devices []inventory.Device, names []string, s inventory.DecideInput) {
	text := capturetest.Ports("mlx4_core", len(card))
	whole := read(k.t, host(k.t, text))
	s = input()
	s.Ours, s.Others = inventory.Published{}, map[string]string{}
	var hidden []string
	var inPod []inventory.Device
	for n, p := range card {
		ifName := fmt.Sprint("p", n+1)
		d := whole[slices.IndexFunc(whole, func(d inventory.Device) bool { return d.IfName == ifName })]
		names = append(names, d.Name)
		switch p.state {
		case claimed:
			s.Ours[d.Name] = k.published(whole, len(card), n, journal.Exclusive)
			if n > 0 { // the driver adds it
				inPod = append(inPod, d)
			}
		case pooled:
			s.Ours[d.Name] = k.published(whole, len(card), n, journal.Shared)
		case attached:
			s.Others["0000:3b:00.0"] = "pod ns/x has it"
		}
		if slices.Contains([]string{elsewhere, claimed, attached}, p.state) {
			hidden = append(hidden, ifName)
		}
	}
	h = host(k.t, capturetest.Without(text, hidden...))
	h.Uplinks, h.Uses = []string{}, map[string]string{}
	for n, p := range card {
		ifName := fmt.Sprint("p", n+1)
		switch at := slices.IndexFunc(h.Links, func(l listing.Interface) bool { return l.Name == ifName }); p.state {
		case uplink:
			h.Uplinks = append(h.Uplinks, ifName)
		case used:
			h.Uses[ifName] = "has the address 10.1.2.3/24"
		case bonded:
			h.Links[at].Master = "bond0"
		}
	}
	return h, append(read(k.t, h), inPod...), names, s
}

// published returns the n-th port as it is offered if no rule selects the others.
func (k *cards) published(whole []inventory.Device, ports, n int, as journal.SharingMode) (d resourceapi.Device) {
	alone := make([]aPort, ports)
	alone[n].rule = as
	for _, d := range inventory.Pool(inventory.Decide(whole, k.rulesOf(alone), input()), nil) {
		return d
	}
	k.t.Fatalf("port %d of %d is not offered alone", n+1, ports)
	return d
}

// stale checks the offers after a claim or another pod got one of them.
func (k *cards) stale(card []aPort, decisions []*inventory.Decision, taken *inventory.Decision) {
	k.t.Helper()
	if free := (inventory.DecideInput{}); !free.StillOffers(decisions, taken.Device.Name) {
		k.t.Errorf("%v: %s is not offered any more, although nobody got it", card, taken.Device.Name)
	}
	now := inventory.DecideInput{Ours: inventory.Published{taken.Device.Name: {AllowMultipleAllocations: new(taken.Sharing == journal.Shared)}}}
	for _, c := range decisions {
		both := taken.Sharing == journal.Shared && c.Sharing == journal.Shared
		if c.Device.Name != taken.Device.Name && !both && now.StillOffers(decisions, c.Device.Name) {
			k.t.Errorf("%v: %s is still offered after a claim got %s", card, c.Device.Name, taken.Device.Name)
		}
	}
	other := inventory.DecideInput{Others: map[string]string{"0000:3b:00.0": "pod ns/x has it"}}
	if taken.Sharing == journal.Exclusive && other.StillOffers(decisions, taken.Device.Name) {
		k.t.Errorf("%v: %s is still offered after a pod got the function", card, taken.Device.Name)
	}
}
