package topology

import "slices"

// offer puts the offers to their devices, and adds the bonds and bridges among them. One of
// a device that is gone is left out.
func (r *reader) offer(offers []Offer) {
	for _, o := range offers {
		at := o.At.Bus + "/" + o.At.Name
		n := r.byName[at]
		if n == nil && o.At.Bus == "net" {
			if n = r.withInterface(o.At.Name); n == nil {
				n = &Node{Kind: Master, Name: o.At.Name}
				r.top.Devices = append(r.top.Devices, n)
			}
			r.byName[at] = n
		}
		if n != nil {
			n.Offer = &o
		}
	}
}

func (r *reader) withInterface(name string) *Node {
	for _, n := range r.byName {
		if slices.Contains(n.Interfaces, name) {
			return n
		}
	}
	return nil
}
