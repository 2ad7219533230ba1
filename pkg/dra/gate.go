package dra

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/nri/pkg/api"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/dra/state"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/pod"
)

// The gate is the CDI device that the kubelet was told of in Prepare. Its spec is there
// only while the network is: until then the runtime refuses to create a container that
// lists the claim, instead of starting it without its network.

// gateName is valid as part of a CDI device name and of a file's: UIDs and request names
// are of letters, digits and '-'.
func gateName(c *claim, at *state.Attachment) string {
	return string(c.ref.UID) + "_" + strings.ReplaceAll(resourceclaim.BaseRequestRef(at.Request), "/", "_")
}

// open writes the metadata of attachments, then their gates.
func (a *Agent) open(c *claim, which []int) error {
	for _, n := range which {
		at := &c.record.Attachments[n]
		if err := a.writeMetadata(c, at); err != nil {
			return fmt.Errorf("claim %s, request %s: device metadata: %w", c.ref, at.Request, err)
		}
		if err := a.openGate(c, at); err != nil {
			return fmt.Errorf("claim %s, request %s: CDI spec: %w", c.ref, at.Request, err)
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
	err := a.metadata.UpdateRequestMetadata(context.Background(), c.ref.Namespace, c.ref.Name, c.ref.UID, at.Request, []kubeletplugin.Device{a.device(c, at)})
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
	name := gateName(c, at)
	edits := cdispec.Attachment{Kind: a.kind, Name: name, IfName: at.IfName}
	if at.Info != nil {
		edits.InfoFile = at.InfoFile
	}
	given, err := a.granted(at)
	if err != nil {
		return err
	}
	for _, r := range given.Refusals {
		a.Log.Warn("not handed to the containers", "claim", c.ref, "request", at.Request, "device", r.Device, "why", r.Why, "remedy", r.Remedy)
	}
	edits.Nodes, edits.Mounts = given.Nodes, given.Mounts
	spec, err := edits.Spec()
	if err != nil {
		return err
	}
	env := &spec.Devices[0].ContainerEdits.Env
	if at.Bare() {
		*env = nil // it has no interface that a variable could be named after
	}
	*env = append(*env, gateVariable+strings.NewReplacer("-", "_", ".", "_").Replace(name)+"="+name+"@"+at.Sandbox)
	if err := a.specs.Write(cdispec.FileName(a.kind, name), cdispec.Encode(spec)); err != nil {
		return err
	}
	a.did("gate open")
	return nil
}

func (a *Agent) granted(at *state.Attachment) (grant.Grant, error) {
	switch {
	case a.Grant == nil || at.Info == nil && !at.Bare():
		return grant.Grant{}, nil
	case at.Bare():
		info := a.discover(at)
		if info == nil {
			return grant.Grant{}, nil
		}
		return a.Grant(info, identity(at), "", "")
	}
	info, err := devinfo.Parse(at.Info)
	var version *devinfo.VersionError
	if errors.As(err, &version) {
		return grant.Grant{}, nil
	}
	if err != nil {
		return grant.Grant{}, err
	}
	return a.Grant(info, identity(at), at.Netns, at.IfName)
}

// identity is that of the pod whose sandbox the attachment is of.
func identity(at *state.Attachment) pod.Identity {
	id := pod.Identity{ContainerID: at.Sandbox}
	for _, arg := range at.Args {
		if arg[0] == "K8S_POD_UID" {
			id.UID = arg[1]
		}
	}
	return id
}

// closeGate closes the gate of an attachment. That it is closed already is success.
func (a *Agent) closeGate(c *claim, at *state.Attachment) error {
	if err := a.specs.Remove(cdispec.FileName(a.kind, gateName(c, at))); err != nil {
		return fmt.Errorf("CDI spec: %w", err)
	}
	a.did("gate closed")
	return nil
}

// closeBare closes the gates of what has no network of ours. DEL closes the others.
func (a *Agent) closeBare(c *claim) error {
	for n := range c.record.Attachments {
		if at := &c.record.Attachments[n]; at.Bare() {
			if err := a.closeGate(c, at); err != nil {
				return fmt.Errorf("claim %s, request %s: %w", c.ref, at.Request, err)
			}
		}
	}
	return nil
}

// A pass is by what a container has come through a gate.
type pass struct {
	gate    string
	sandbox string // that the gate was opened for; "" = it is not known
}

// gateVariable begins the environment variables that show, wherever the runtime does not
// tell which CDI devices a container has, through which gates it came.
const gateVariable = "CNI_DRA_GATE_"

// passesOf are a container's.
func (a *Agent) passesOf(container *api.Container) (list []pass) {
	seen := map[string]bool{}
	for _, variable := range container.GetEnv() {
		name, value, _ := strings.Cut(variable, "=")
		gate, sandbox, ok := strings.Cut(value, "@")
		if strings.HasPrefix(name, gateVariable) && ok {
			list = append(list, pass{gate, sandbox})
			seen[gate] = true
		}
	}
	for _, device := range container.GetCDIDevices() {
		if gate, ours := strings.CutPrefix(device.GetName(), a.kind+"="); ours && !seen[gate] {
			list = append(list, pass{gate: gate})
		}
	}
	return list
}

// device is what the kubelet and the pod are told of an attachment.
func (a *Agent) device(c *claim, at *state.Attachment) kubeletplugin.Device {
	d := kubeletplugin.Device{
		Requests: []string{at.Request}, PoolName: at.Pool, DeviceName: at.Device, ShareID: at.ShareID,
		CDIDeviceIDs: []string{cdispec.Qualified(a.kind, gateName(c, at))},
	}
	switch {
	case at.Metadata != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: at.Metadata.Attributes, NetworkData: at.Metadata.NetworkData}
	case at.Node != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: attributesOf(at)}
	}
	return d
}
