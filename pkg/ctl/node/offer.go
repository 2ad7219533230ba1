package node

import (
	"errors"
	"fmt"
	"io/fs"

	"devinfo-cni.io/pkg/ctl/topology"
	"devinfo-cni.io/pkg/dra/state"
)

// Offer is what cni-dra-driver says of the node's own devices; nil = it offers none. With a
// Problem its rules are invalid, and it does not start.
func (n *Node) Offer() (*state.Offer, error) {
	o, err := state.ReadOffer(n.Path(n.ClaimDir))
	if err == nil {
		return o, nil
	}
	if err = fmt.Errorf("offered devices: %w", err); errors.Is(err, fs.ErrPermission) {
		return nil, &Error{Err: err, Remedy: "run as root: what is in " + n.ClaimDir + " is root's alone"}
	}
	return nil, err
}

// Offers are the devices of an offer, and where they are.
func Offers(o *state.Offer) (list []topology.Offer) {
	for _, d := range o.Devices {
		list = append(list, topology.Offer{
			At: placeOf(d.PCI, d.Aux, d.VDPA, d.IfName), Name: d.Name, As: d.As, ResourceName: d.ResourceName, Why: d.Why,
		})
	}
	return list
}

// Place says where the device of a claim is; ok is false if it is none of the node's own.
func (a *Attachment) Place() (at topology.At, ok bool) {
	if a.node == nil {
		return at, false
	}
	return placeOf(a.node.PCI, a.node.Aux, a.node.VDPA, a.node.IfName), true
}

func placeOf(pci, aux, vdpa, ifName string) topology.At {
	switch {
	case vdpa != "":
		return topology.At{Bus: "vdpa", Name: vdpa}
	case aux != "":
		return topology.At{Bus: "auxiliary", Name: aux}
	case pci != "":
		return topology.At{Bus: "pci", Name: pci}
	}
	return topology.At{Bus: "net", Name: ifName}
}
