package result

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Lost returns the interfaces and addresses of r that later does not pass on, although a plugin must pass on everything
// in its prevResult (SPEC.md section 5, "ADD Success"). An item is a text such as "interface eth0 in /run/netns/pod
// with 10.0.0.2/24", or "address 10.0.0.2/24 of eth0 in /run/netns/pod". It lists ten items, and the number of the others.
// A nil result loses nothing.
func (r *Result) Lost(later *Result) (lost []string) {
	if r == nil {
		return nil
	}
	before, after := r.addresses(), later.addresses()
	for _, e := range r.given {
		if e.Name == "" || later.holds(&e.Interface) {
			continue
		}
		text, with := "interface "+place(&e.Interface), " with "
		for _, a := range before {
			if a.of != nil && a.of.is(&e.Interface) {
				text, with = text+with+a.prefix, ", "
			}
		}
		lost = append(lost, text)
	}
	for _, a := range before {
		owner := ""
		if a.of != nil {
			if !later.holds(a.of) {
				continue // listed with its interface
			}
			owner = " of " + place(a.of)
		}
		if !slices.ContainsFunc(after, a.handedOnBy) {
			lost = append(lost, "address "+a.prefix+owner)
		}
	}
	const most, longest = 10, 300
	if more := len(lost) - most; more > 0 {
		lost = append(lost[:most], fmt.Sprintf("%d more", more))
	}
	for n, text := range lost {
		if len(text) > longest {
			lost[n] = strings.ToValidUTF8(text[:longest], "") + "…"
		}
	}
	return lost
}

// Has reports whether the result contains the interface, by the rule of Find. If it does, a previous plugin
// created the interface or knows about it. ok is false if the result came in a version before 0.3.0, which has
// no interfaces. A nil result contains none.
func (r *Result) Has(name, sandbox string) (has, ok bool) {
	_, has = r.Find(name, sandbox)
	return has, has || r == nil || r.own == "" || atLeast(r.own, "0.3.0")
}

// holds reports whether the result contains the interface, whatever the spelling of the sandbox's path.
func (r *Result) holds(i *Interface) bool {
	return r != nil && slices.ContainsFunc(r.given, func(e entry) bool { return i.is(&e.Interface) })
}

// is reports whether the interfaces have the same name and both or neither are in the sandbox. It ignores the path
// of the sandbox, because plugins spell it differently.
func (i *Interface) is(other *Interface) bool {
	return i.Name == other.Name && (i.Sandbox == "") == (other.Sandbox == "")
}

func place(i *Interface) string {
	if i.Sandbox == "" {
		return i.Name
	}
	return i.Name + " in " + i.Sandbox
}

// An address is one entry of ips.
type address struct {
	prefix string     // "10.0.0.2/24"
	of     *Interface // nil = unknown
}

// handedOnBy reports whether b is the same address and does not belong to another interface.
func (a address) handedOnBy(b address) bool {
	return a.prefix == b.prefix && (a.of == nil || b.of == nil || a.of.is(b.of))
}

// addresses returns the addresses in the original text.
func (r *Result) addresses() (list []address) {
	if r == nil {
		return nil
	}
	type old struct{ IP string } // before 0.3.0
	var v struct {
		IP4, IP6 *old
		IPs      []*struct {
			Address   string
			Interface *int // index in interfaces
		}
	}
	_ = json.Unmarshal(r.text, &v) // keys of other versions may have any type
	for _, ip := range []*old{v.IP4, v.IP6} {
		if ip != nil && ip.IP != "" {
			list = append(list, address{canonical(ip.IP), nil})
		}
	}
	for _, ip := range v.IPs {
		if ip == nil || ip.Address == "" {
			continue
		}
		a := address{prefix: canonical(ip.Address)}
		if n := ip.Interface; n != nil && *n >= 0 && *n < len(r.given) {
			a.of = &r.given[*n].Interface
		}
		list = append(list, a)
	}
	return list
}

// canonical returns the canonical form of an address prefix, and any other text unchanged.
func canonical(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.String()
	}
	return text
}
