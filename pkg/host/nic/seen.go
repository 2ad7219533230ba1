package nic

import (
	"cmp"
	"fmt"
	"slices"

	"devinfo-cni.io/pkg/host/hostdev"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Remedy tells the owner of a card on which devinfo was never run what to do.
const Remedy = "try it on a free VF: docs/report.md"

// Card is a kind of card that a host has.
type Card struct {
	Text   string // "E810 (ice): by source only"
	OnCard bool   // an owner of such a card has reported that devinfo works on it
}

// Seen returns the kinds of cards among the devices of a host, in the order of their addresses. A VF counts only if its PF
// is not on the host.
func Seen(sys *sysfs.FS, devices []*hostdev.Device) (cards []Card, err error) {
	for _, d := range devices {
		if d.PCI == "" || d.Parent != nil {
			continue
		}
		vendor, device, err := sys.IDs(d.Function.Address)
		if err != nil {
			return nil, err
		}
		card := Card{Text: fmt.Sprintf("%s (%s:%s, driver %q): not in the table of devinfo's NICs", d.PCI, vendor, device, d.Driver)}
		if f, product := Of(vendor, device, d.Driver); f != nil {
			card.Text = fmt.Sprintf("%s (%s): %s", cmp.Or(product, f.Vendor), f.Driver, f.HowTried())
			card.OnCard = slices.ContainsFunc(f.Tried, func(t Trial) bool { return t.How == Reported })
			if f.Tried == nil {
				card.Text += " only"
			}
		}
		if !slices.Contains(cards, card) {
			cards = append(cards, card)
		}
	}
	return cards, nil
}
