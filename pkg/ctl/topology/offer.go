package topology

import (
	"slices"

	"devinfo-cni.io/pkg/ctl/node"
	"devinfo-cni.io/pkg/dra/state"
)

// offer puts the offers to their devices, and adds the bonds and bridges among them. One of
// a device that is gone is left out.
func (r *reader) offer(offers []state.Offered) {
	for _, o := range offers {
		place := node.PlaceOf(o.PCI, o.Aux, o.VDPA, o.IfName)
		at := place.Bus + "/" + place.Name
		n := r.byName[at]
		if n == nil && place.Bus == "net" {
			if n = r.withInterface(place.Name); n == nil {
				n = &Node{Kind: Master, Name: place.Name}
				r.top.Devices = append(r.top.Devices, n)
			}
			r.byName[at] = n
		}
		if n != nil {
			n.Offer = &Offer{Name: o.Name, As: o.As, ResourceName: o.ResourceName, Why: o.Why}
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
