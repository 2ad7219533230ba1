package claim

import (
	"encoding/json"
	"errors"
	"io/fs"

	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
)

// rdmaVariable returns the variable DEVINFO_RDMA_DEVICES of a pod: the RDMA devices of all its claims, sorted by
// interface name (net2 before net10), then those without a network. The mutex must be held.
func (t *table) rdmaVariable(pod state.Pod) string {
	var all []state.Attachment
	for _, c := range t.claimsOf(pod) {
		all = append(all, c.record.Attachments...)
	}
	return network.RDMAVariable(all)
}

// writeSpec writes the CDI spec of a gate, with the pod's RDMA devices. It first updates the specs of the pod's other
// gates, because a container may start as soon as its gates are open, and its last spec sets the variable. It reads only the
// specs of claims that do not have the variable yet, so that the cost of a pod is linear in its interfaces.
func (g *gate) writeSpec(c *claim, file string, spec *specs.Spec) error {
	g.writing.Lock() // so that a closed gate is not written again, and no older list replaces this one
	defer g.writing.Unlock()
	var rdma string
	var outdated []*claim
	g.table.do(func() {
		rdma = g.table.rdmaVariable(c.pod)
		for _, of := range g.table.claimsOf(c.pod) {
			if of.rdma == nil || *of.rdma != rdma {
				outdated = append(outdated, of)
			}
		}
	})
	for _, of := range outdated {
		if err := g.updateRDMA(of, file, rdma); err != nil {
			return err
		}
		of.rdma = &rdma
	}
	network.SetRDMA(spec, rdma)
	return g.Specs.Write(file, cdispec.Encode(spec))
}

// updateRDMA sets DEVINFO_RDMA_DEVICES in the open gates of a claim, except in file.
func (g *gate) updateRDMA(c *claim, except, rdma string) error {
	var record *state.Claim
	g.table.do(func() { record = c.record })
	for n := range record.Attachments {
		file := g.File(record, &record.Attachments[n])
		if file == except {
			continue
		}
		text, err := g.Specs.Read(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // the gate is closed
		case err != nil:
			return err
		case network.HasRDMA(text, rdma):
			continue
		}
		var old specs.Spec
		if json.Unmarshal(text, &old) != nil || len(old.Devices) != 1 {
			continue // the worker of its claim opens it again
		}
		network.SetRDMA(&old, rdma)
		if err := g.Specs.Write(file, cdispec.Encode(&old)); err != nil {
			return err
		}
	}
	return nil
}
