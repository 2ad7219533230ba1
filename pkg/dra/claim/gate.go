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
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/host/store"
)

// gate opens and closes the gates of attachments. A gate is a CDI device whose name the kubelet gets in
// Prepare. Its spec exists only while the network is attached. Without the spec, the runtime refuses to create
// containers that use the claim, so that none starts without its network.
type gate struct {
	Options
	table    *table
	kind     string // kind of the CDI devices
	specs    *store.Dir
	writing  sync.Mutex // held while specs are written or removed; see writeSpec
	metadata Metadata   // nil = metadata is disabled
	node     *devices.Node
}

// userNamespaceKey is an annotation of the CDI specs of pods with their own user namespace.
const userNamespaceKey = "devinfo-cni.io/user-namespace"

// gateName returns a name that is valid for CDI devices and files: it contains only letters, digits, '-' and '_'.
func gateName(uid string, at *state.Attachment) string {
	name := uid + "_" + strings.ReplaceAll(resourceclaim.BaseRequestRef(at.Request), "/", "_")
	switch {
	case at.Bare():
		name += "_" + at.Device
	case at.Index > 0:
		name += "_" + strconv.Itoa(at.Index)
	}
	return name
}

// requestOf returns what names a device without a network in the variables of containers.
func requestOf(record *state.Claim, at *state.Attachment) *cdispec.Request {
	return &cdispec.Request{
		Claim: cmp.Or(record.PodClaim, record.Name), Name: resourceclaim.BaseRequestRef(at.Request), Number: at.Index, Device: at.Device,
	}
}

func (g *gate) file(record *state.Claim, at *state.Attachment) string {
	return cdispec.FileName(g.kind, gateName(record.UID, at))
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
			all = append(all, g.device(record, at))
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
	name := gateName(c.uid(), at)
	edits := cdispec.Device{Kind: g.kind, Name: name, IfName: at.IfName}
	if at.Bare() {
		edits.Request = requestOf(c.record, at)
		if err := g.leaseBare(c); err != nil {
			return err
		}
		if err := g.node.WritePluginFile(at); err != nil {
			return err
		}
	} else if at.Info != nil {
		edits.InfoFile = g.mountableInfoFile(c, at)
	}
	info, err := g.infoOf(at)
	if err != nil {
		return err
	}
	given, err := g.node.Grant(c.record, at, info)
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
	g.addHook(c, at, spec)
	if spec.Version, err = specs.MinimumRequiredVersion(spec); err != nil {
		return err
	}
	if err := g.writeSpec(c, g.file(c.record, at), spec); err != nil {
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

// addHook adds a hook that fails containers for which the gate was not opened, such as those of another pod, or of the
// pod's next sandbox. The hook needs neither the driver nor its NRI connection.
func (g *gate) addHook(c *claim, at *state.Attachment, spec *specs.Spec) {
	pod, ifName := c.record.Pod, ""
	if !at.Bare() {
		pod, ifName = podOf(at), " ("+at.IfName+")"
	}
	what := fmt.Sprintf("claim %s, request %s, is held by pod %s/%s%s", c.name(), at.Request, pod.Namespace, pod.Name, ifName)
	spec.Devices[0].ContainerEdits.Hooks = []*specs.Hook{{
		HookName: "createRuntime", Path: g.Gate, Args: []string{filepath.Base(g.Gate), admitted(c.record, at), what},
		Timeout: new(10), // seconds; the hook takes milliseconds
	}}
}

// admitted returns the argument of cni-dra-gate that names the containers for which the gate is open. A gate without
// a network opens before the sandbox exists, and its pod may be on the host's network.
func admitted(record *state.Claim, at *state.Attachment) string {
	if at.Bare() {
		return "pod/" + record.Pod.UID
	}
	return at.Netns
}

// mountableInfoFile returns the path of the device-info file, or "" if a user other than root could replace it
// before the runtime mounts it.
func (g *gate) mountableInfoFile(c *claim, at *state.Attachment) string {
	if err := g.Unexposed(cmp.Or(g.HostRoot, "/"), filepath.Dir(at.InfoFile)); err != nil {
		g.Log.Warn("device-info file withheld from containers", "claim", c.ref, "request", at.Request, "file", at.InfoFile, "reason", err,
			"remedy", "chown each directory on the path to root and set its mode to 0755")
		return ""
	}
	return at.InfoFile
}

// infoOf returns the device information of an attachment, or nil if it has none or one of another major version.
func (g *gate) infoOf(at *state.Attachment) (*devinfo.Info, error) {
	switch {
	case at.Bare():
		return g.node.Describe(at), nil
	case at.Info == nil:
		return nil, nil
	}
	info, err := devinfo.Parse(at.Info)
	if errors.As(err, new(*devinfo.VersionError)) {
		return nil, nil
	}
	return info, err
}

// closeGate removes the CDI spec of an attachment.
func (g *gate) closeGate(record *state.Claim, at *state.Attachment) error {
	g.writing.Lock()
	err := g.specs.Remove(g.file(record, at))
	g.writing.Unlock()
	if err != nil {
		return fmt.Errorf("remove the CDI spec: %w", err)
	}
	g.Reached("gate closed")
	return nil
}

// isOpen reports whether the gate of an attachment is open, and whether its spec is current too. A reboot or another
// program may have removed the spec, the lease, or the file of a device plugin. A spec from before the sandbox was known
// may list device nodes that the pod cannot open. A spec of an earlier driver may lack the hook or the variables of a request, and
// the claim may have changed its pod. Each spec must set rdma, because the last of several specs sets the variable for the container; the
// claim that changes it updates all open gates before it opens its own, so that no sandbox waits for that.
func (g *gate) isOpen(record *state.Claim, at *state.Attachment, rdma string) (open, current bool) {
	if at.Phase != state.Added && !at.Bare() || at.Bare() && !(g.node.Leases.IsHeld(record) && g.node.HasPluginFile(at)) {
		return false, false
	}
	spec, err := g.specs.Read(g.file(record, at))
	if err != nil {
		open = !errors.Is(err, fs.ErrNotExist)
		return open, open
	}
	own, known := g.table.userNamespace(record.Pod.UID)
	hook, _ := json.Marshal(g.Gate)
	its, _ := json.Marshal(admitted(record, at))
	open = (!known || own == bytes.Contains(spec, []byte(userNamespaceKey))) && bytes.Contains(spec, hook) && bytes.Contains(spec, its)
	named := !at.Bare() || bytes.Contains(spec, []byte("="+at.Device+`"`))
	return open, open && named && hasRDMA(spec, rdma)
}

// device returns an attachment as the kubelet and the pod's metadata show it.
func (g *gate) device(record *state.Claim, at *state.Attachment) kubeletplugin.Device {
	d := kubeletplugin.Device{
		Requests: []string{at.Request}, PoolName: at.Pool, DeviceName: at.Device, ShareID: (*types.UID)(at.ShareID),
		CDIDeviceIDs: []string{cdispec.Qualified(g.kind, gateName(record.UID, at))},
	}
	switch {
	case at.Metadata != nil:
		recorded := devices.MetadataOf(at)
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: recorded.Attributes, NetworkData: recorded.NetworkData}
	case at.NodeDevice != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: g.node.Attributes(at, nil)}
	}
	return d
}
