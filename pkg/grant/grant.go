// Package grant decides which device nodes and which directories of the host a
// container may have for its network attachment.
//
// Whoever writes a NetworkAttachmentDefinition can declare any device and any path. So a
// node is given only for a device that is the attachment's own interface, or that the
// node's settings allow, and only as /sys shows it: what the device information says of
// nodes is not trusted. A directory is given only where the node's settings allow it, and
// only to the pod that its name contains.
package grant

import (
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/pod"
	"devinfo-cni.io/pkg/sysfs"
)

// Policy is the node's settings.
type Policy struct {
	Devices    []string // cdiDevices: PCI addresses of devices and of their PFs, vDPA management devices, or "*"
	SocketDirs []string // socketDirs: a socket's directory must be directly below one of them
}

// A Refusal names a part of the device that the container does not get, and why.
type Refusal struct{ Device, Why, Remedy string }

func (r Refusal) Error() string { return fmt.Sprintf("%s: not handed over: %s", r.Device, r.Why) }

// Grant is what the container may have.
type Grant struct {
	Nodes    []cdispec.Node
	Mounts   []cdispec.Mount
	Refusals []Refusal

	// SocketDir is the directory of the host that is among Mounts for its socket, links
	// resolved; "" = none. Its last element holds what is Granter.Pod's alone, so that
	// is a name for the pod's lease of it.
	SocketDir string

	IOMMUGroup string // whose node is among Nodes; "" = none: "15"
}

// Nodes looks up the device node at a path below /dev; fs.ErrNotExist if there is none.
type Nodes func(path string) (cdispec.Node, error)

// Granter knows the host and its policy.
type Granter struct {
	Sys    *sysfs.FS
	Nodes  Nodes
	Policy Policy

	// Pod is the pod whose containers ask: a socket's directory must be its own.
	Pod pod.Identity
	// SocketDir is the host's directory of a socket; "" = the path is the same on
	// both sides.
	SocketDir string
	// SF is the sub-function that the device is, an auxiliary device: the address is
	// then its parent's; "" = the device is what the address says.
	SF string
	// Shared says that the device is not the interface's alone: nobody has it.
	Shared bool
	// Leased says whether the pod has an exclusive lease of a device, by its sysfs.Object.ID
	// or "iommu-15"; nil = it is about to take those of what it is granted.
	Leased func(id string) bool
	// Unasked says that nobody asked for the device by its CDI name: the nodes by which a
	// fabric is managed, umad and issm, are then given only where Policy names the device.
	Unasked bool
}

// Of returns what the container may have of a device, given its description. own says that
// the device is the attachment's own interface, found in the pod's network namespace, and
// not shared. It fails only if the kernel cannot be read.
func (g Granter) Of(info *devinfo.Info, own bool) (Grant, error) {
	o := &offer{Granter: g, own: own}
	var err error
	switch d := info.Device().(type) {
	case *devinfo.PCI:
		err = o.function(d)
	case *devinfo.VDPA:
		err = o.vdpa(d)
	case *devinfo.VhostUser:
		o.socket(d.Path)
	case *devinfo.Memif:
		o.socket(d.Path)
	}
	return o.Grant, err
}

// offer is one Of.
type offer struct {
	Granter
	Grant
	own bool
}

func (o *offer) refuse(device, why, remedy string) {
	o.Refusals = append(o.Refusals, Refusal{device, why, remedy})
}

// add hands over the nodes, all or none; it says which one is missing, and why.
func (o *offer) add(paths ...string) (missing string, err error) {
	var nodes []cdispec.Node
	for _, path := range paths {
		n, err := o.Granter.Nodes(path)
		if err != nil {
			return path, err
		}
		nodes = append(nodes, n)
	}
	o.Grant.Nodes = append(o.Grant.Nodes, nodes...)
	return "", nil
}
