package dra

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/dra/state"
)

// The gate is the CDI device that the kubelet was told of in Prepare. Its spec is there
// only while the network is: until then the runtime refuses to create a container that
// lists the claim, instead of starting it without its network.

// gateName is valid as part of a CDI device name and of a file's: UIDs and the names of
// requests and devices are of letters, digits and '-'.
func gateName(uid types.UID, at *state.Attachment) string {
	name := string(uid) + "_" + strings.ReplaceAll(resourceclaim.BaseRequestRef(at.Request), "/", "_")
	switch {
	case at.Bare():
		name += "_" + at.Device
	case at.Index > 0:
		name += "_" + strconv.Itoa(at.Index)
	}
	return name
}

// open writes the metadata of attachments, then their gates.
func (a *Agent) open(c *claim, which []int) error {
	for _, n := range which {
		at := &c.record.Attachments[n]
		if err := a.writeMetadata(c, at); err != nil {
			return fmt.Errorf("claim %s, request %s: device metadata: %w", c.ref, at.Request, err)
		}
		if err := a.openGate(c, at); err != nil {
			return fmt.Errorf("claim %s, request %s: gate: %w", c.ref, at.Request, err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.announce()
	return nil
}

func (a *Agent) writeMetadata(c *claim, at *state.Attachment) error {
	if a.metadata == nil || at.Bare() { // of which Prepare has told all
		return nil
	}
	var all []kubeletplugin.Device // what is told replaces what was
	for n := range c.record.Attachments {
		if other := &c.record.Attachments[n]; resourceclaim.BaseRequestRef(other.Request) == resourceclaim.BaseRequestRef(at.Request) {
			all = append(all, a.device(c, other))
		}
	}
	err := a.metadata.UpdateRequestMetadata(context.Background(), c.ref.Namespace, c.ref.Name, c.ref.UID, at.Request, all)
	if err == nil {
		a.did("metadata")
	}
	return err
}

// reopen opens the gates that are closed though the networks are there, and those whose
// metadata somebody has written over.
func (a *Agent) reopen(c *claim, which []int) error {
	a.mu.Lock()
	rewrite := c.rewrite
	c.rewrite = false
	a.mu.Unlock()
	err := a.open(c, which)
	if err != nil {
		a.mu.Lock()
		c.rewrite = c.rewrite || rewrite
		a.mu.Unlock()
	}
	return err
}

// openGate writes the CDI spec of an attachment.
func (a *Agent) openGate(c *claim, at *state.Attachment) error {
	name := gateName(c.ref.UID, at)
	edits := cdispec.Device{Kind: a.kind, Name: name, IfName: at.IfName}
	if at.Info != nil && !at.Bare() {
		edits.InfoFile = a.mountable(c, at)
	}
	if at.Bare() {
		if err := a.holdBare(c); err != nil {
			return err
		}
	}
	info, err := a.described(at)
	if err != nil {
		return err
	}
	given, err := a.node.Grant(c.record, at, info)
	if err != nil {
		return err
	}
	for _, r := range given.Refusals {
		a.Log.Warn("not handed to the containers", "claim", c.ref, "request", at.Request, "device", r.Device, "why", r.Why, "remedy", r.Remedy)
	}
	edits.Info, edits.Nodes, edits.Mounts = info, given.Nodes, given.Mounts
	spec, err := edits.Spec()
	if err != nil {
		return err
	}
	env := &spec.Devices[0].ContainerEdits.Env
	if at.Bare() { // it has no interface that the variable could be named after, and must have something
		*env = []string{"CNI_DRA_GATE_" + strings.NewReplacer("-", "_", ".", "_").Replace(name) + "=" + name}
	}
	if err := a.guard(c, at, spec); err != nil {
		return err
	}
	if err := a.specs.Write(cdispec.FileName(a.kind, name), cdispec.Encode(spec)); err != nil {
		return err
	}
	a.did("gate open")
	return nil
}

// guard has the runtime refuse containers that are in another network namespace than the one
// that is attached, such as those of the pod's next sandbox. What it takes is in the spec: the
// agent and its connection to the runtime may be away.
func (a *Agent) guard(c *claim, at *state.Attachment, spec *specs.Spec) (err error) {
	if at.Bare() || a.Gate == "" {
		return nil
	}
	pod := podOf(at)
	what := fmt.Sprintf("claim %s, request %s, is held by pod %s/%s (%s)", c.name(), at.Request, pod.Namespace, pod.Name, at.IfName)
	spec.Devices[0].ContainerEdits.Hooks = []*specs.Hook{{
		HookName: "createRuntime", Path: a.Gate, Args: []string{filepath.Base(a.Gate), at.Netns, what}, Timeout: new(gatePatience),
	}}
	spec.Version, err = specs.MinimumRequiredVersion(spec)
	return err
}

// gatePatience is what the runtime waits for the hook, in seconds; it takes milliseconds.
const gatePatience = 10

// isGuarded says whether a spec is as guard makes it: one of an earlier agent may not be.
func (a *Agent) isGuarded(at *state.Attachment, spec []byte) bool {
	path, _ := json.Marshal(a.Gate)
	return at.Bare() || a.Gate == "" || bytes.Contains(spec, path)
}

// mountable is the path of the device-info file, by which the runtime mounts it later; "" if
// somebody could put a link in its place until then.
func (a *Agent) mountable(c *claim, at *state.Attachment) string {
	if err := a.Unexposed(cmp.Or(a.HostRoot, "/"), filepath.Dir(at.InfoFile)); err != nil {
		a.Log.Warn("not handed to the containers", "claim", c.ref, "request", at.Request, "file", at.InfoFile, "why", err,
			"remedy", "make each directory on the path root's, with mode 0755")
		return ""
	}
	return at.InfoFile
}

// described is the device information of an attachment; nil = none that we understand.
func (a *Agent) described(at *state.Attachment) (*devinfo.Info, error) {
	switch {
	case at.Bare():
		return a.node.Describe(at), nil
	case at.Info == nil:
		return nil, nil
	}
	info, err := devinfo.Parse(at.Info)
	if errors.As(err, new(*devinfo.VersionError)) {
		return nil, nil
	}
	return info, err
}

// holdBare leases the devices that a claim brings no network for.
func (a *Agent) holdBare(c *claim) error {
	for n := range c.record.Attachments {
		if at := &c.record.Attachments[n]; at.Bare() {
			if err := a.otherClaim(c, at); err != nil {
				return err
			}
		}
	}
	return a.node.Leases.HoldBare(c.record)
}

// podOf is the pod whose sandbox an attachment is of.
func podOf(at *state.Attachment) state.Pod {
	return state.Pod{Namespace: at.Arg("K8S_POD_NAMESPACE"), Name: at.Arg("K8S_POD_NAME"), UID: types.UID(at.Arg("K8S_POD_UID"))}
}

// closeGate closes the gate of an attachment. That it is closed already is success.
func (a *Agent) closeGate(record *state.Claim, at *state.Attachment) error {
	if err := a.specs.Remove(cdispec.FileName(a.kind, gateName(record.UID, at))); err != nil {
		return fmt.Errorf("CDI spec: %w", err)
	}
	a.did("gate closed")
	return nil
}

// release lets go of all that attachments have which owe nothing: the gates of what has no
// network of ours, and leases that were taken for an ADD before which the agent was killed.
func (a *Agent) release(c *claim) error {
	for n := range c.record.Attachments {
		at := &c.record.Attachments[n]
		if at.Bare() {
			if err := a.closeGate(c.record, at); err != nil {
				return fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
			}
		}
		if err := a.letGo(c.record, at); err != nil {
			return fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
		}
	}
	return nil
}

// device is what the kubelet and the pod are told of an attachment.
func (a *Agent) device(c *claim, at *state.Attachment) kubeletplugin.Device {
	d := kubeletplugin.Device{
		Requests: []string{at.Request}, PoolName: at.Pool, DeviceName: at.Device, ShareID: at.ShareID,
		CDIDeviceIDs: []string{cdispec.Qualified(a.kind, gateName(c.ref.UID, at))},
	}
	switch {
	case at.Metadata != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: at.Metadata.Attributes, NetworkData: at.Metadata.NetworkData}
	case at.Node != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: a.node.Attributes(at, nil)}
	}
	return d
}
