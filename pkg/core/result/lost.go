package result

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Lost returns the interfaces and addresses of r that later does not pass on, although a plugin must pass on everything
// in its prevResult (SPEC.md section 5, "ADD Success"). An item is a text such as "interface eth0 in /run/netns/pod", or
// "address 10.0.0.2/24 of eth0 in /run/netns/pod". It lists ten items, and the number of the others. A nil result loses
// nothing.
func (r *Result) Lost(later *Result) (lost []string) {
	const most, longest = 10, 300
	has, more := later.parts(), 0
	for _, p := range r.parts() {
		switch {
		case slices.ContainsFunc(has, func(o part) bool { return o.key == p.key }):
		case len(lost) == most:
			more++
		case len(p.text) > longest:
			lost = append(lost, strings.ToValidUTF8(p.text[:longest], "")+"…")
		default:
			lost = append(lost, p.text)
		}
	}
	if more > 0 {
		lost = append(lost, fmt.Sprintf("%d more", more))
	}
	return lost
}

type part struct {
	key  string // without the path of the sandbox, which plugins spell differently
	text string
}

func (r *Result) parts() (list []part) {
	if r == nil {
		return nil
	}
	for _, e := range r.given {
		if e.Name != "" {
			list = append(list, part{fmt.Sprintf("%s %t", e.Name, e.Sandbox == ""), "interface " + place(e)})
		}
	}
	type address struct {
		Address   string
		Interface *int // index in interfaces
	}
	var v struct {
		IP4, IP6 struct{ IP string } // before 0.3.0
		IPs      []address
	}
	_ = json.Unmarshal(r.text, &v) // keys of other versions may have any type
	for _, a := range append([]address{{Address: v.IP4.IP}, {Address: v.IP6.IP}}, v.IPs...) {
		if a.Address == "" {
			continue
		}
		if prefix, err := netip.ParsePrefix(a.Address); err == nil {
			a.Address = prefix.String() // its canonical form
		}
		p := part{a.Address, "address " + a.Address}
		if n := a.Interface; n != nil && *n >= 0 && *n < len(r.given) {
			p.text += " of " + place(r.given[*n])
		}
		list = append(list, p)
	}
	return list
}

func place(e entry) string {
	if e.Sandbox == "" {
		return e.Name
	}
	return e.Name + " in " + e.Sandbox
}
