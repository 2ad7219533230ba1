package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

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

// open opens the gates of a claim that is attached, and writes its metadata.
func (a *Agent) open(ctx context.Context, c *claim) error {
	for n := range c.record.Attachments {
		at := &c.record.Attachments[n]
		if err := a.openGate(c, at); err != nil {
			return fmt.Errorf("request %s: CDI spec: %w", at.Request, err)
		}
		if a.metadata == nil {
			continue
		}
		ctx := context.WithoutCancel(ctx)
		err := a.metadata.UpdateRequestMetadata(ctx, c.ref.Namespace, c.ref.Name, c.ref.UID, at.Request, []kubeletplugin.Device{a.device(c, at)})
		if err != nil {
			return fmt.Errorf("request %s: device metadata: %w", at.Request, err)
		}
		a.step("metadata")
	}
	return nil
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
	if err := a.specs.Write(cdispec.FileName(a.kind, name), cdispec.Encode(spec)); err != nil {
		return err
	}
	a.step("gate open")
	return nil
}

func (a *Agent) granted(at *state.Attachment) (grant.Grant, error) {
	if a.Grant == nil || at.Info == nil {
		return grant.Grant{}, nil
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

// close closes the gate of an attachment. That it is closed already is success.
func (a *Agent) close(c *claim, at *state.Attachment) error {
	if err := a.specs.Remove(cdispec.FileName(a.kind, gateName(c, at))); err != nil {
		return fmt.Errorf("CDI spec: %w", err)
	}
	a.step("gate closed")
	return nil
}

// reopen opens the gates that are gone though the networks are there: the directory of
// CDI specs does not outlive a reboot, and others may clear it.
func (a *Agent) reopen(c *claim) error {
	var errs []error
	for n := range c.record.Attachments {
		at := &c.record.Attachments[n]
		if at.Phase != state.Added || at.BootID != a.BootID {
			continue
		}
		if _, err := a.specs.Read(cdispec.FileName(a.kind, gateName(c, at))); errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, a.openGate(c, at))
		}
	}
	return errors.Join(errs...)
}

// device is what the kubelet and the pod are told of an attachment.
func (a *Agent) device(c *claim, at *state.Attachment) kubeletplugin.Device {
	d := kubeletplugin.Device{
		Requests: []string{at.Request}, PoolName: at.Pool, DeviceName: at.Device, ShareID: at.ShareID,
		CDIDeviceIDs: []string{cdispec.Qualified(a.kind, gateName(c, at))},
	}
	if at.Metadata != nil {
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: at.Metadata.Attributes, NetworkData: at.Metadata.NetworkData}
	}
	return d
}
