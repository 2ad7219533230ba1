package network

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/state"
	"devinfo-cni.io/pkg/dra/devices"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Gate writes the CDI specs of attachments. A gate is a CDI device whose name the kubelet gets in Prepare.
type Gate struct {
	Kind      string     // kind of the CDI devices
	Specs     *store.Dir // of the container runtime
	Hook      string     // path of cni-dra-gate on the host; the program keeps containers of other sandboxes out
	HostRoot  string
	Unexposed func(root, dir string) error // normally [store.UnexposedBelow]

	Node    *devices.Node
	Reached func(name string)
	Log     *slog.Logger
}

// GateName returns a name that is valid for CDI devices and files: it contains only letters, digits, '-' and '_'.
func GateName(uid string, at *state.Attachment) string {
	name := uid + "_" + resourceclaim.BaseRequestRef(at.Request)
	switch {
	case at.Bare():
		name += "_" + at.Device
	case at.Index > 0:
		name += "_" + strconv.Itoa(at.Index)
	}
	return name
}

func (g *Gate) File(record *state.Claim, at *state.Attachment) string {
	return cdispec.FileName(g.Kind, GateName(record.UID, at))
}

// Spec returns the CDI spec of a gate, except for DEVINFO_RDMA_DEVICES: see [SetRDMA]. userns says that the pod has its own
// user namespace. It also returns what containers do not get.
func (g *Gate) Spec(record *state.Claim, at *state.Attachment, userns bool) (*specs.Spec, []grant.Refusal, error) {
	edits := cdispec.Device{Kind: g.Kind, Name: GateName(record.UID, at), IfName: at.IfName}
	if at.Bare() {
		edits.Request = &cdispec.Request{
			Claim: cmp.Or(record.PodClaim, record.Name), Name: resourceclaim.BaseRequestRef(at.Request), Number: at.Index, Device: at.Device,
		}
	} else if at.Info != nil {
		edits.InfoFile = at.InfoFile
		if err := g.Unexposed(cmp.Or(g.HostRoot, "/"), filepath.Dir(at.InfoFile)); err != nil { // others could replace it before the runtime mounts it
			edits.InfoFile = ""
			g.Log.Warn("device-info file withheld from containers", "claim", record.Namespace+"/"+record.Name, "request", at.Request,
				"file", at.InfoFile, "reason", err, "remedy", "chown each directory on the path to root and set its mode to 0755")
		}
	}
	info, err := g.infoOf(at)
	if err != nil {
		return nil, nil, err
	}
	given, err := g.Node.Grant(record, at, info)
	if err != nil {
		return nil, nil, err
	}
	if userns {
		given.InUserNamespace()
	}
	edits.Info, edits.Nodes, edits.Mounts = info, given.Nodes, given.Mounts
	spec, err := edits.Spec()
	if err != nil {
		return nil, nil, err
	}
	g.addHook(record, at, spec)
	spec.Version, err = specs.MinimumRequiredVersion(spec)
	return spec, given.Refusals, err
}

// Covers reports whether an old spec gives the same containers as spec at least its variables and device nodes, and with
// userns no device node that a pod with its own user namespace cannot open. A node whose mode cannot be read counts as one, as
// in [Gate.Spec]; one that is absent does not, because its device may come back.
func (g *Gate) Covers(old, spec *specs.Spec, userns bool) bool {
	has, wants := old.Devices[0].ContainerEdits, spec.Devices[0].ContainerEdits
	lacksVariable := func(v string) bool { return !slices.Contains(has.Env, v) }
	lacksNode := func(d *specs.DeviceNode) bool {
		return !slices.ContainsFunc(has.DeviceNodes, func(o *specs.DeviceNode) bool { return reflect.DeepEqual(o, d) })
	}
	isClosed := func(d *specs.DeviceNode) bool {
		node, err := g.Node.DeviceNodes(d.Path)
		return err != nil && !errors.Is(err, fs.ErrNotExist) || err == nil && grant.RefuseInUserNamespace(node) != nil
	}
	return reflect.DeepEqual(has.Hooks, wants.Hooks) && !slices.ContainsFunc(wants.Env, lacksVariable) &&
		!slices.ContainsFunc(wants.DeviceNodes, lacksNode) && !(userns && g.Node.DeviceNodes != nil && slices.ContainsFunc(has.DeviceNodes, isClosed))
}

// addHook adds a hook that fails containers for which the gate was not opened, such as those of another pod, or of the
// pod's next sandbox. The hook needs neither the driver nor its NRI connection.
func (g *Gate) addHook(record *state.Claim, at *state.Attachment, spec *specs.Spec) {
	pod, ifName := record.Pod, ""
	if !at.Bare() {
		pod, ifName = PodOf(at), " ("+at.IfName+")"
	}
	what := fmt.Sprintf("claim %s/%s, request %s, is held by pod %s/%s%s", record.Namespace, record.Name, at.Request, pod.Namespace, pod.Name, ifName)
	spec.Devices[0].ContainerEdits.Hooks = []*specs.Hook{{
		HookName: "createRuntime", Path: g.Hook, Args: []string{filepath.Base(g.Hook), Admitted(record, at), what},
		Timeout: new(10), // seconds; the hook takes milliseconds
	}}
}

// Admitted returns the argument of cni-dra-gate that names the containers for which the gate is open. A gate without
// a network opens before the sandbox exists, and its pod may be on the host's network.
func Admitted(record *state.Claim, at *state.Attachment) string {
	if at.Bare() {
		return "pod/" + record.Pod.UID
	}
	return at.Netns
}

// infoOf returns the device information of an attachment, or nil if it has none or one of another major version.
func (g *Gate) infoOf(at *state.Attachment) (*devinfo.Info, error) {
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

// Device returns an attachment as the kubelet and the pod's metadata show it.
func (g *Gate) Device(record *state.Claim, at *state.Attachment) kubeletplugin.Device {
	d := kubeletplugin.Device{
		Requests: []string{at.Request}, PoolName: at.Pool, DeviceName: at.Device, ShareID: (*types.UID)(at.ShareID),
		CDIDeviceIDs: []string{cdispec.Qualified(g.Kind, GateName(record.UID, at))},
	}
	switch {
	case at.Metadata != nil:
		recorded := devices.MetadataOf(at)
		d.Metadata = (*kubeletplugin.DeviceMetadata)(&recorded)
	case at.NodeDevice != nil:
		d.Metadata = &kubeletplugin.DeviceMetadata{Attributes: g.Node.Attributes(at, nil)}
	}
	return d
}

// PodOf returns the pod of an attachment.
func PodOf(at *state.Attachment) state.Pod {
	namespace, name := at.Args.Name()
	return state.Pod{Namespace: namespace, Name: name, UID: at.Args.UID()}
}

// RDMAVariable returns the variable DEVINFO_RDMA_DEVICES of a pod with these attachments: the RDMA devices, sorted by
// interface name (net2 before net10), then those without a network.
func RDMAVariable(all []state.Attachment) string {
	var attached, bare []*devinfo.Info
	for _, at := range slices.SortedStableFunc(slices.Values(all), func(a, b state.Attachment) int { return sysfs.ByNumber(a.IfName, b.IfName) }) {
		info, err := devinfo.Parse(at.Info)
		switch {
		case err != nil: // the device information is missing, or has another major version
		case at.Bare():
			bare = append(bare, info)
		case at.Phase == state.Added:
			attached = append(attached, info)
		}
	}
	return cdispec.RDMADevices(append(attached, bare...))
}

// SetRDMA sets DEVINFO_RDMA_DEVICES in a spec of one device to rdma; "" removes it.
func SetRDMA(spec *specs.Spec, rdma string) {
	edits := &spec.Devices[0].ContainerEdits
	edits.Env = slices.DeleteFunc(slices.Clone(edits.Env), func(env string) bool { return strings.HasPrefix(env, cdispec.RDMAVariable+"=") })
	if rdma != "" {
		edits.Env = append(edits.Env, rdma)
	}
}
