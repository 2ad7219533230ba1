package main

import (
	"errors"
	"fmt"

	"devinfo-cni.io/pkg/ctl/topology"
	"devinfo-cni.io/pkg/dra/state"
)

// offer is what cni-dra-driver says of the node's own devices; nil = it offers none.
func (h *host) offer() (*state.Offer, error) {
	o, err := state.ReadOffer(h.path(h.claimDir))
	if errors.Is(err, errPermission) {
		return nil, blind(fmt.Errorf("offered devices: %w", err), "run as root: what is in "+h.claimDir+" is root's alone")
	} else if err != nil {
		return nil, fmt.Errorf("offered devices: %w", h.explained(err))
	}
	return o, nil
}

// offers are the devices that rules of cni-dra-driver name. Those that are unknown are left
// out with a warning: the devices are still worth seeing.
func (t *tool) offers(h *host) (list []topology.Offer) {
	o, err := h.offer()
	if err != nil && !errors.Is(err, errPermission) { // which held has told of
		t.warn("%v", err)
	}
	if o == nil {
		return nil
	}
	if o.Problem != "" {
		t.warn("cni-dra-driver offers nothing: %s", o.Problem)
	}
	for _, d := range o.Devices {
		list = append(list, topology.Offer{
			At: placeOf(d.PCI, d.Aux, d.VDPA, d.IfName), Name: d.Name, As: d.As, ResourceName: d.ResourceName, Why: d.Why,
		})
	}
	return list
}

// checkOffer fails if the rules of the node's devices are invalid.
func (h *host) checkOffer() error {
	o, err := h.offer()
	if err != nil || o == nil || o.Problem == "" {
		return err
	}
	return &failure{exitFound, errors.New("cni-dra-driver: " + o.Problem), "correct the rules: cni-dra-driver does not start with these"}
}

// placeOf says where one of the node's own devices is.
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
