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
	"errors"
	"fmt"
	"path/filepath"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/pod"
	"devinfo-cni.io/pkg/sysfs"
)

// A Refusal names a part of the device that the container does not get, and why.
type Refusal struct{ Device, Why, Remedy string }

func (r Refusal) Error() string { return fmt.Sprintf("%s: withheld: %s", r.Device, r.Why) }

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

// InUserNamespace moves the device nodes that a container in a user namespace cannot open to the refusals.
func (g *Grant) InUserNamespace() {
	var nodes []cdispec.Node
	for _, n := range g.Nodes {
		if r := RefuseInUserNamespace(n); r != nil {
			g.Refusals = append(g.Refusals, *r)
		} else {
			nodes = append(nodes, n)
		}
	}
	g.Nodes = nodes
}

// RefuseInUserNamespace refuses a device node that a container in a user namespace cannot open. It returns nil
// if everybody may read and write the node: its owner on the node is nobody there.
func RefuseInUserNamespace(n cdispec.Node) *Refusal {
	const forOthers = 0o006
	if n.Perm&forOthers == forOthers {
		return nil
	}
	return &Refusal{n.Path, fmt.Sprintf("it has mode %04o on the host; a pod in a user namespace needs read and write permission for other users", n.Perm),
		"set its mode to 0666 on the host, or set hostUsers: true in the pod"}
}

// Nodes looks up the device node at a path below /dev; fs.ErrNotExist if there is none.
type Nodes func(path string) (cdispec.Node, error)

// NodesBelow is Nodes of the machine whose root is mounted at a path; "" = ours. A
// container's own /dev lacks what was made after its start.
func NodesBelow(root string) Nodes {
	return func(path string) (cdispec.Node, error) {
		n, err := sysfs.ReadNode(filepath.Join("/", root, path))
		return cdispec.Node{Path: path, Type: n.Type, Major: n.Major, Minor: n.Minor, Perm: n.Perm, UID: n.UID, GID: n.GID}, err
	}
}

// Granter knows the host and its policy.
type Granter struct {
	Sys      *sysfs.FS
	Nodes    Nodes
	Settings config.Node // the policy: its AllowedDevices and SocketDirs

	// Pod is the pod whose containers ask: a socket's directory must be its own.
	Pod pod.Identity
	// SocketDir is the host's directory of a socket; "" = the path is the same on
	// both sides.
	SocketDir string
	// Leased says whether the pod has an exclusive lease of a device, by its sysfs.Object.ID
	// or "iommu-15"; nil = it is about to take those of what it is granted.
	Leased func(id string) bool
	// Unasked says that nobody asked for the device by its CDI name: the nodes by which a
	// fabric is managed, umad and issm, are then given only where Settings name the device.
	Unasked bool
}

// For returns what the container may have of a device that a Finder has found. info is its
// description, or one that the Finder was given and did not contradict. It fails only if the
// kernel cannot be read.
func (g Granter) For(found *discovery.Device, info *devinfo.Info) (Grant, error) {
	o := &offer{Granter: g, found: found}
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

// ForInterface is For after ADD: the interface is in the network namespace at the path
// netns, and info is what the device-info file says. If the file describes another device
// than the interface's, only what the node's settings allow of that device is given.
//
// It fails with link.ErrNoNetns, or if the kernel cannot be read.
func (g Granter) ForInterface(finder *discovery.Finder, netns, ifName string, info *devinfo.Info) (Grant, error) {
	// Looked at as widely as a plugin may have been told to: a device that is shared must
	// be seen to be.
	search := *finder
	search.Eswitches = nil // a representor is nothing that a container could have
	found, err := search.Find(discovery.Target{Existing: info, Netns: netns, IfName: ifName, FollowLower: true, SubfunctionParent: true})
	if _, conflict := errors.AsType[*discovery.ConflictError](err); conflict {
		found, err = &discovery.Device{}, nil
	}
	if err != nil {
		return Grant{}, err
	}
	return g.For(found, info)
}

// offer is one For.
type offer struct {
	Granter
	Grant
	found *discovery.Device
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
