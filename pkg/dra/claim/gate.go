package claim

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
	"devinfo-cni.io/pkg/dra/devices"
)

// gate opens and closes the gates of attachments. A gate is a CDI device whose name the kubelet gets in
// Prepare. Its spec exists only while the network is attached. Without the spec, the runtime refuses to create
// containers that use the claim, so that none starts without its network.
type gate struct {
	network.Gate
	table    *table
	writing  sync.Mutex // held while specs are written or removed; see writeSpec
	metadata Metadata   // nil = metadata is disabled
	node     *devices.Node
}

// open writes the metadata of attachments, then the CDI specs that let their containers start.
func (g *gate) open(c *claim, indexes []int) error {
	var gates map[int]bool
	g.table.do(func() { gates = c.gatesOpen })
	for _, n := range indexes {
		at := &c.record.Attachments[n]
		if !at.Bare() { // Prepare returned the complete metadata of a bare device
			if err := g.writeMetadata(c, at.Request); err != nil {
				return err
			}
		}
		if err := g.openGate(c, at); err != nil {
			return fmt.Errorf("claim %s, request %s: open the gate: %w", c.ref, at.Request, err)
		}
	}
	g.table.do(func() {
		for _, n := range indexes {
			gates[n] = true
		}
		g.table.notifyWaiters()
	})
	return nil
}

func (g *gate) writeMetadata(c *claim, request string) error {
	if g.metadata == nil {
		return nil
	}
	c.describing.Lock()
	defer c.describing.Unlock()
	var record *state.Claim
	g.table.do(func() { record = c.record })
	var all []kubeletplugin.Device // UpdateRequestMetadata replaces all devices of the request
	for n := range record.Attachments {
		if at := &record.Attachments[n]; resourceclaim.BaseRequestRef(at.Request) == resourceclaim.BaseRequestRef(request) {
			all = append(all, g.Device(record, at))
		}
	}
	err := g.metadata.UpdateRequestMetadata(context.Background(), c.ref.Namespace, c.ref.Name, c.ref.UID, request, all)
	if err != nil {
		return fmt.Errorf("claim %s, request %s: write device metadata: %w", c.ref, request, err)
	}
	g.Reached("metadata")
	return nil
}

func (g *gate) openGate(c *claim, at *state.Attachment) error {
	if at.Bare() {
		if err := g.leaseBare(c); err != nil {
			return err
		}
		if err := g.node.WritePluginFile(at); err != nil {
			return err
		}
	}
	userns, _ := g.table.userNamespace(c.record.Pod.UID)
	spec, err := g.Spec(c.record, at, userns)
	if err != nil {
		return err
	}
	if err := g.writeSpec(c, g.File(c.record, at), spec); err != nil {
		return err
	}
	g.Reached("gate open")
	return nil
}

func (g *gate) leaseBare(c *claim) error {
	for n := range c.record.Attachments {
		if at := &c.record.Attachments[n]; at.Bare() {
			if err := g.table.checkReleased(c, at); err != nil {
				return err
			}
		}
	}
	return g.node.Leases.LeaseBare(c.record)
}

// closeGate removes the CDI spec of an attachment.
func (g *gate) closeGate(record *state.Claim, at *state.Attachment) error {
	g.writing.Lock()
	err := g.Specs.Remove(g.File(record, at))
	g.writing.Unlock()
	if err != nil {
		return fmt.Errorf("remove the CDI spec: %w", err)
	}
	g.Reached("gate closed")
	return nil
}

// isOpen reports whether the gate of an attachment is open, and whether it is current too: see [network.Gate.IsOpen]. A
// reboot or another program may have removed the lease, or the file of a device plugin.
func (g *gate) isOpen(record *state.Claim, at *state.Attachment, rdma string) (open, current bool) {
	if at.Phase != state.Added && !at.Bare() || at.Bare() && !(g.node.Leases.IsHeld(record) && g.node.HasPluginFile(at)) {
		return false, false
	}
	own, known := g.table.userNamespace(record.Pod.UID)
	return g.IsOpen(record, at, rdma, func(userns bool) bool { return !known || own == userns })
}
