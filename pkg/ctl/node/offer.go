package node

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/pkg/ctl/remedy"
	"devinfo-cni.io/pkg/dra/state"
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
	Name         string   `json:"name"` // in the ResourceSlice
	Kind         string   `json:"kind"`
	Where        string   `json:"where"` // PCI address, auxiliary or vDPA device, or interface
	As           string   `json:"as"`    // "exclusive" or "shared"
	ResourceName string   `json:"resourceName,omitempty"`
	GivenTo      []string `json:"givenTo,omitempty"` // pods, or else claims
	Why          string   `json:"why,omitempty"`     // it is not offered; "" = it is
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
	given := map[Place][]string{}
	for _, a := range claimed {
		if at, ok := a.Place(); ok {
			given[at] = append(given[at], a.Holder())
		}
	}
	for _, d := range o.Devices {
		at := PlaceOf(d.PCI, d.Aux, d.VDPA, d.IfName)
		list = append(list, OfferedDevice{d.Name, d.Kind, at.Name, d.As, d.ResourceName, given[at], d.Why})
	}
	return list, nil
}

// Place says where the device of a claim is; ok is false if that is not one of the node's
// own.
func (a *Attachment) Place() (at Place, ok bool) {
	if a.node == nil {
		return at, false
	}
	return PlaceOf(a.node.PCI, a.node.Aux, a.node.VDPA, a.node.IfName), true
}

// Place is where a device is: on a bus, by the name there. An interface that is no device's
// has the bus "net".
type Place struct{ Bus, Name string }

// PlaceOf is the innermost place of a device that has these.
func PlaceOf(pci, aux, vdpa, ifName string) Place {
	switch {
	case vdpa != "":
		return Place{Bus: "vdpa", Name: vdpa}
	case aux != "":
		return Place{Bus: "auxiliary", Name: aux}
	case pci != "":
		return Place{Bus: "pci", Name: pci}
	}
	return Place{Bus: "net", Name: ifName}
}
