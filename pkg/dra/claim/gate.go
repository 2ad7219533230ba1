package claim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/claim/network"
)

// gate opens and closes the gates of attachments. A gate is a CDI device whose name the kubelet gets in
// Prepare. Its spec exists only while the network is attached. Without the spec, the runtime refuses to create
// containers that use the claim, so that none starts without its network.
type gate struct {
	network.Gate
	table    *table
	writing  sync.Mutex         // held while specs are read, written or removed; see writeSpec
	written  map[string]written // by file; guarded by writing; see last
	metadata Metadata           // nil = metadata is disabled
}

// written is a CDI spec as this process or an earlier one wrote it, and what it was made for.
type written struct {
	spec   *specs.Spec
	text   []byte
	admits string // see [network.Admitted]; "" = an earlier process wrote it
	userns bool   // the pod has its own user namespace
	rdma   string // DEVINFO_RDMA_DEVICES of the pod

	withheld []grant.Refusal // what containers do not get
}

// last returns the CDI spec as it was last written; its spec is nil if there is none. One that this process does not know is
// read, because an earlier process may have written it, until a read succeeds. g.writing must be held.
func (g *gate) last(file string) (written, error) {
	was, known := g.written[file]
	if known {
		return was, nil
	}
	text, err := g.Specs.Read(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return was, err
	}
	if spec := new(specs.Spec); json.Unmarshal(text, spec) == nil && len(spec.Devices) == 1 {
		was = written{spec: spec, text: text}
	}
	g.written[file] = was
	return was, nil
}

// open writes the metadata of attachments, then the CDI specs that let their containers start. It calls then with the mutex
// held as each gate is open, before those who wait for it go on.
func (g *gate) open(c *claim, indexes []int, then func()) error {
	var gates map[int]bool
	g.table.do(func() { gates = c.gatesOpen })
	for _, n := range indexes {
		at := &c.record.Attachments[n]
		if err := g.openOne(c, at); err != nil {
			return c.wrap(at, fmt.Errorf("open the gate: %w", err))
		}
		g.Reached("gate open")
		g.table.do(func() {
			gates[n] = true
			then()
			g.table.notifyWaiters()
		})
	}
	return nil
}

// openOne first takes the leases of devices without a network.
func (g *gate) openOne(c *claim, at *state.Attachment) error {
	if at.Bare() {
		if err := g.Node.Leases.LeaseBare(c.record); err != nil {
			return err
		}
		if err := g.Node.WritePluginFile(at); err != nil {
			return err
		}
	}
	file := g.File(c.record, at)
	userns, known := g.table.userNamespace(c.record.Pod.UID)
	as, err := g.specOf(c.record, at, userns)
	if err != nil {
		return err
	}
	adopted, there, err := g.adopt(c, at, file, as)
	if there && !adopted && !known { // an earlier process may have known the sandbox
		var other written
		if other, err = g.specOf(c.record, at, true); err == nil {
			adopted, _, err = g.adopt(c, at, file, other)
		}
	}
	if err != nil || adopted {
		return err
	}
	if !at.Bare() { // Prepare returned the complete metadata of a bare device
		if err := g.writeMetadata(c, at.Request); err != nil {
			return err
		}
	}
	for _, r := range as.withheld {
		g.Log.Warn("device withheld from containers", "claim", c.record.Namespace+"/"+c.record.Name, "request", at.Request, "device", r.Device, "reason", r.Why, "remedy", r.Remedy)
	}
	return g.writeSpec(c, file, as)
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
		return fmt.Errorf("write device metadata: %w", err)
	}
	g.Reached("metadata")
	return nil
}

func (g *gate) specOf(record *state.Claim, at *state.Attachment, userns bool) (written, error) {
	spec, withheld, err := g.Spec(record, at, userns)
	return written{spec: spec, admits: network.Admitted(record, at), userns: userns, withheld: withheld}, err
}

// adopt reports whether the spec is on disk already, because an earlier process wrote it, and whether any is there. Nothing
// is written again then, so that the pod sees no new metadata. Of a device without a network the spec may have more than is
// known now: the device cannot be read at the moment, or Multus has moved its interface into the pod.
func (g *gate) adopt(c *claim, at *state.Attachment, file string, as written) (adopted, there bool, err error) {
	g.table.do(func() { as.rdma = g.table.rdmaVariable(c.pod) })
	as.encode()
	g.writing.Lock()
	defer g.writing.Unlock()
	was, err := g.last(file)
	if err != nil {
		return false, false, err
	}
	if at.Bare() && was.spec != nil && was.admits == "" && g.Covers(was.spec, as.spec, as.userns) {
		as.spec, as.text = was.spec, was.text
	}
	now, err := g.Specs.Read(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, false, nil
	case err != nil || !bytes.Equal(now, as.text):
		return false, true, err
	}
	g.written[file] = as
	return true, true, nil
}

// closeGate removes the CDI spec of an attachment.
func (g *gate) closeGate(record *state.Claim, at *state.Attachment) error {
	file := g.File(record, at)
	g.writing.Lock()
	err := g.Specs.Remove(file)
	delete(g.written, file)
	g.writing.Unlock()
	if err != nil {
		return fmt.Errorf("remove the CDI spec: %w", err)
	}
	g.Reached("gate closed")
	return nil
}

// isOpen reports whether the gate of an attachment is open for its pod, and whether it is current too. A reboot or another
// program may have removed the lease, the file of a device plugin, or the spec. A spec from before the sandbox was known may
// list device nodes that the pod cannot open, the claim may have changed its pod, and an earlier process may have known less:
// what this process has not written itself is written again. What it has written counts as unchanged while it cannot be
// read. Each spec must set rdma, because the last of several specs sets the variable for the container; the claim that
// changes it updates all open gates before it opens its own, so that no sandbox waits for that.
func (g *gate) isOpen(record *state.Claim, at *state.Attachment, rdma string) (open, current bool) {
	if at.Phase != state.Added && !at.Bare() || at.Bare() && !(g.Node.Leases.IsHeld(record) && g.Node.HasPluginFile(at)) {
		return false, false
	}
	own, known := g.table.userNamespace(record.Pod.UID)
	file := g.File(record, at)
	g.writing.Lock()
	defer g.writing.Unlock()
	now, err := g.Specs.Read(file)
	as := g.written[file] // a spec that has still to be read admits nobody
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		now = as.text
	}
	open = bytes.Equal(now, as.text) && as.admits == network.Admitted(record, at) && (!known || as.userns == own)
	return open, open && as.rdma == rdma
}

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
// gates, because a container may start as soon as its gates are open, and its last spec sets the variable. It reads each at
// most once, so that the cost of a pod is linear in its interfaces.
func (g *gate) writeSpec(c *claim, file string, as written) error {
	g.writing.Lock() // so that a closed gate is not written again, and no older list replaces this one
	defer g.writing.Unlock()
	var records []*state.Claim
	g.table.do(func() {
		as.rdma = g.table.rdmaVariable(c.pod)
		for _, of := range g.table.claimsOf(c.pod) {
			records = append(records, of.record)
		}
	})
	for _, record := range records {
		for n := range record.Attachments {
			other := g.File(record, &record.Attachments[n])
			was, err := g.last(other)
			if err == nil && was.spec != nil && other != file && was.rdma != as.rdma {
				was.rdma = as.rdma
				err = g.write(other, was)
			}
			if err != nil {
				return err
			}
		}
	}
	return g.write(file, as)
}

func (g *gate) write(file string, as written) error {
	as.encode()
	if err := g.Specs.Write(file, as.text); err != nil {
		return err // the former spec is still there, and its rdma tells the next attempt to write it
	}
	g.written[file] = as
	return nil
}

// encode sets the text of a spec with rdma. A copy of the spec gets the variable, because the former one is in use until the
// text is on disk.
func (w *written) encode() {
	spec := *w.spec
	spec.Devices = slices.Clone(spec.Devices)
	w.spec = &spec
	network.SetRDMA(w.spec, w.rdma)
	w.text = cdispec.Encode(w.spec)
}
