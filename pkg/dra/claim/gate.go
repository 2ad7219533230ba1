package claim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/dra/state"
)

// gate opens and closes the gates of attachments. A gate is the CDI device that the kubelet was told of in
// Prepare. Its spec only exists while the network does: until then the runtime refuses to create a container
// that lists the claim, instead of starting it without its network.
type gate struct {
	Options
	table    *table
	kind     string // of the CDI devices
	specs    *store.Dir
	metadata Metadata // nil = not enabled
}

// userNamespaceKey annotates the CDI specs for pods with a user namespace of their own.
const userNamespaceKey = "devinfo-cni.io/user-namespace"

// gateName is valid in names of CDI devices and of files: all of it is letters, digits, '-' and '_'.
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

func (g *gate) file(record *state.Claim, at *state.Attachment) string {
	return cdispec.FileName(g.kind, gateName(record.UID, at))
}

// open writes the metadata of attachments, then their gates.
func (g *gate) open(c *claim, which []int) error {
	for _, n := range which {
		at := &c.record.Attachments[n]
		if err := g.writeMetadata(c, at); err != nil {
			return fmt.Errorf("claim %s, request %s: write device metadata: %w", c.ref, at.Request, err)
		}
		if err := g.openGate(c, at); err != nil {
			return fmt.Errorf("claim %s, request %s: open the gate: %w", c.ref, at.Request, err)
		}
	}
	g.table.do(func() {
		for _, n := range which {
			c.gatesOpen[n] = true
		}
		g.table.notifyWaiters()
	})
	return nil
}

func (g *gate) writeMetadata(c *claim, at *state.Attachment) error {
	if g.metadata == nil || at.Bare() { // Prepare has told all of a bare device
		return nil
	}
	var all []kubeletplugin.Device // replace those of before
	for n := range c.record.Attachments {
		if other := &c.record.Attachments[n]; resourceclaim.BaseRequestRef(other.Request) == resourceclaim.BaseRequestRef(at.Request) {
			all = append(all, g.device(c.record, other))
		}
	}
	err := g.metadata.UpdateRequestMetadata(context.Background(), c.ref.Namespace, c.ref.Name, c.ref.UID, at.Request, all)
	if err == nil {
		g.Step("metadata")
	}
	return err
}

func (g *gate) openGate(c *claim, at *state.Attachment) error {
	name := gateName(c.ref.UID, at)
	edits := cdispec.Device{Kind: g.kind, Name: name, IfName: at.IfName}
	if at.Bare() {
		if err := g.leaseBare(c); err != nil {
			return err
		}
		if err := g.Node.WritePluginFile(at); err != nil {
			return err
		}
	} else if at.Info != nil {
		edits.InfoFile = g.mountableInfoFile(c, at)
	}
	info, err := g.infoOf(at)
	if err != nil {
		return err
	}
	given, err := g.Node.Grant(c.record, at, info)
	if err != nil {
		return err
	}
	userns, _ := g.table.userNamespace(c.record.Pod.UID)
	if userns {
		given.InUserNamespace()
	}
	for _, r := range given.Refusals {
		g.Log.Warn("device withheld from containers", "claim", c.ref, "request", at.Request, "device", r.Device, "reason", r.Why, "remedy", r.Remedy)
	}
	edits.Info, edits.Nodes, edits.Mounts = info, given.Nodes, given.Mounts
	spec, err := edits.Spec()
	if err != nil {
		return err
	}
	if userns {
		spec.Devices[0].Annotations = map[string]string{userNamespaceKey: "true"}
	}
	if at.Bare() { // a CDI device must have an edit, and there is no interface to name a variable after
		variable := "CNI_DRA_GATE_" + strings.NewReplacer("-", "_", ".", "_").Replace(name)
		spec.Devices[0].ContainerEdits.Env = []string{variable + "=" + name}
	} else {
		g.addHook(c, at, spec)
	}
	var all string
	g.table.do(func() { all = g.table.rdmaVariable(c.pod) })
	if all != "" {
		spec.Devices[0].ContainerEdits.Env = append(spec.Devices[0].ContainerEdits.Env, all)
	}
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return err
	}
	if err := g.specs.Write(g.file(c.record, at), cdispec.Encode(spec)); err != nil {
		return err
	}
	g.Step("gate open")
	return nil
}

// leaseBare leases the devices of a claim that have no network in it.
func (g *gate) leaseBare(c *claim) error {
	for n := range c.record.Attachments {
		if at := &c.record.Attachments[n]; at.Bare() {
			if err := g.table.checkReleased(c, at); err != nil {
				return err
			}
		}
	}
	return g.Node.Leases.HoldBare(c.record)
}

// addHook adds a hook by which the runtime refuses containers in another network namespace than the attached one,
// such as those of the pod's next sandbox. It works without the agent and its connection to the runtime.
func (g *gate) addHook(c *claim, at *state.Attachment, spec *specs.Spec) {
	pod := podOf(at)
	what := fmt.Sprintf("claim %s, request %s, is held by pod %s/%s (%s)", c.name(), at.Request, pod.Namespace, pod.Name, at.IfName)
	spec.Devices[0].ContainerEdits.Hooks = []*specs.Hook{{
		HookName: "createRuntime", Path: g.Gate, Args: []string{filepath.Base(g.Gate), at.Netns, what},
		Timeout: new(10), // seconds; the hook takes milliseconds
	}}
}

// mountableInfoFile returns the path of the device-info file; "" if a link could replace it before the runtime mounts it.
func (g *gate) mountableInfoFile(c *claim, at *state.Attachment) string {
	if err := g.Unexposed(cmp.Or(g.HostRoot, "/"), filepath.Dir(at.InfoFile)); err != nil {
		g.Log.Warn("device-info file withheld from containers", "claim", c.ref, "request", at.Request, "file", at.InfoFile, "reason", err,
			"remedy", "chown each directory on the path to root and set its mode to 0755")
		return ""
	}
	return at.InfoFile
}

// infoOf returns the device information of an attachment; nil = none, or of another version.
func (g *gate) infoOf(at *state.Attachment) (*devinfo.Info, error) {
	switch {
	case at.Bare():
		return g.Node.Describe(at), nil
	case at.Info == nil:
		return nil, nil
	}
	info, err := devinfo.Parse(at.Info)
	if errors.As(err, new(*devinfo.VersionError)) {
		return nil, nil
	}
	return info, err
}

// closeGate removes the CDI spec of an attachment, if it exists.
func (g *gate) closeGate(record *state.Claim, at *state.Attachment) error {
	if err := g.specs.Remove(g.file(record, at)); err != nil {
		return fmt.Errorf("remove the CDI spec: %w", err)
	}
	g.Step("gate closed")
	return nil
}

// isOpen reports whether the gate of an attachment is open. CDI specs, device-info files and leases do not outlive
// a reboot, and other programs may remove specs and files. The spec of an earlier agent may lack what guard adds. A spec that was written before
// the sandbox was known may have device nodes that the pod cannot open. A spec must have the variable rdma, because
// the last of several specs sets it for the container.
func (g *gate) isOpen(record *state.Claim, at *state.Attachment, rdma string) bool {
	if at.Bare() && !(g.Node.Leases.IsHeld(record) && g.Node.HasPluginFile(at)) {
		return false
	}
	spec, err := g.specs.Read(g.file(record, at))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	own, known := g.table.userNamespace(record.Pod.UID)
	if known && own != bytes.Contains(spec, []byte(userNamespaceKey)) {
		return false
	}
	if !hasRDMA(spec, rdma) {
		return false
	}
	hook, _ := json.Marshal(g.Gate)
	return at.Bare() || bytes.Contains(spec, hook)
}

// hasRDMA reports whether a spec sets DEVINFO_RDMA_DEVICES as rdma does; "" = it must not set it.
func hasRDMA(spec []byte, rdma string) bool {
	if rdma == "" {
		return !bytes.Contains(spec, []byte(`"`+cdispec.RDMAVariable+`=`))
	}
	quoted, _ := json.Marshal(rdma)
	return bytes.Contains(spec, quoted)
}

// device returns what the kubelet and the pod are told of an attachment.
func (g *gate) device(record *state.Claim, at *state.Attachment) kubeletplugin.Device {
	d := kubeletplugin.Device{
		Requests: []string{at.Request}, PoolName: at.Pool, DeviceName: at.Device, ShareID: at.ShareID,
		CDIDeviceIDs: []string{cdispec.Qualified(g.kind, gateName(record.UID, at))},
	}
	switch {
	case at.Metadata != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: at.Metadata.Attributes, NetworkData: at.Metadata.NetworkData}
	case at.NodeDevice != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: g.Node.Attributes(at, nil)}
	}
	return d
}
