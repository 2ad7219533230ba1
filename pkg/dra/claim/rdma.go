package claim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/host/sysfs"
)

// rdmaVariable returns the variable DEVINFO_RDMA_DEVICES of a pod: the RDMA devices of all its claims, sorted by
// interface name (net2 before net10), then those without a network. The mutex must be held.
func (t *table) rdmaVariable(pod state.Pod) string {
	var all []state.Attachment
	for _, c := range t.claimsOf(pod) {
		all = append(all, c.record.Attachments...)
	}
	return rdmaVariable(all)
}

func rdmaVariable(all []state.Attachment) string {
	attached, bare := map[string]*devinfo.Info{}, []*devinfo.Info(nil)
	for _, at := range all {
		info, err := devinfo.Parse(at.Info)
		switch {
		case err != nil: // the device information is missing, or has another major version
		case at.Bare():
			bare = append(bare, info)
		case at.Phase == state.Added:
			attached[at.IfName] = info
		}
	}
	var infos []*devinfo.Info
	for _, name := range slices.SortedFunc(maps.Keys(attached), sysfs.ByNumber) {
		infos = append(infos, attached[name])
	}
	return cdispec.RDMADevices(append(infos, bare...))
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
	setRDMA(spec, rdma)
	return g.specs.Write(file, cdispec.Encode(spec))
}

// updateRDMA sets DEVINFO_RDMA_DEVICES in the open gates of a claim, except in file.
func (g *gate) updateRDMA(c *claim, except, rdma string) error {
	var record *state.Claim
	g.table.do(func() { record = c.record })
	for n := range record.Attachments {
		file := g.file(record, &record.Attachments[n])
		if file == except {
			continue
		}
		text, err := g.specs.Read(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // the gate is closed
		case err != nil:
			return err
		case hasRDMA(text, rdma):
			continue
		}
		var old specs.Spec
		if json.Unmarshal(text, &old) != nil || len(old.Devices) != 1 {
			continue // the worker of its claim opens it again
		}
		setRDMA(&old, rdma)
		if err := g.specs.Write(file, cdispec.Encode(&old)); err != nil {
			return err
		}
	}
	return nil
}

// setRDMA sets DEVINFO_RDMA_DEVICES in a spec of one device to rdma; "" removes it.
func setRDMA(spec *specs.Spec, rdma string) {
	edits := &spec.Devices[0].ContainerEdits
	edits.Env = slices.DeleteFunc(edits.Env, func(env string) bool { return strings.HasPrefix(env, cdispec.RDMAVariable+"=") })
	if rdma != "" {
		edits.Env = append(edits.Env, rdma)
	}
}

// hasRDMA reports whether a spec sets DEVINFO_RDMA_DEVICES as rdma does, or does not set it if rdma is "".
func hasRDMA(spec []byte, rdma string) bool {
	if rdma == "" {
		return !bytes.Contains(spec, []byte(`"`+cdispec.RDMAVariable+`=`))
	}
	quoted, _ := json.Marshal(rdma)
	return bytes.Contains(spec, quoted)
}
