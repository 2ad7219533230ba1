package node

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/hostdev"
)

// Offer is what cni-dra-driver says of the node's own devices; nil = it offers none. With a
// Problem its rules are invalid, and it does not start.
func (n *Node) Offer() (*state.Offer, error) {
	o, err := state.ReadOffer(n.Path(n.ClaimDir))
	if err == nil {
		return o, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, remedy.For(fmt.Errorf("offered devices: %w", err), "run as root: what is in "+n.ClaimDir+" is root's alone")
	}
	return nil, errors.New("offered devices: " + n.text(err.Error()))
}

// OfferedDevice is a device that a rule of cni-dra-driver names.
type OfferedDevice struct {
	state.Offered
	Where   string   `json:"where"`             // PCI address, auxiliary or vDPA device, or interface
	GivenTo []string `json:"givenTo,omitempty"` // pods, or else claims
}

// Offered are the devices of an offer that rules name, by name.
func (n *Node) Offered(o *state.Offer) ([]OfferedDevice, error) {
	list := []OfferedDevice{}
	if o == nil {
		return list, nil
	}
	claimed, err := n.claimed()
	if err != nil {
		return nil, err
	}
	given := map[hostdev.Place][]string{}
	for _, a := range claimed {
		if at, ok := a.Place(); ok {
			given[at] = append(given[at], a.Holder())
		}
	}
	for _, d := range o.Devices {
		at := d.Place()
		list = append(list, OfferedDevice{d, at.Name, given[at]})
	}
	return list, nil
}

// Place says where the device of a claim is; ok is false if that is not one of the node's
// own.
func (a *Attachment) Place() (at hostdev.Place, ok bool) {
	if a.node == nil {
		return at, false
	}
	return a.node.Place(), true
}
