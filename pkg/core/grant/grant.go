// Package grant decides which device nodes and host directories a container may have for its network attachment.
//
// The author of a NetworkAttachmentDefinition can declare any device and any path, so the package does not
// trust the device nodes in the device information. It finds device nodes in /sys, and grants them only if their
// device is the attachment's own interface or the node's settings allow it. For the verbs of an RDMA device a claim for
// it is enough; the device nodes of subnet managers, umad and issm, need a setting that names the device or its PF. The
// package grants a directory only if the node's settings allow it and its name contains the ID of the pod.
package grant

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Refusal gives the reason why the container does not get a device, device node or directory.
type Refusal struct{ Device, Why, Remedy string }

func (r Refusal) Error() string { return fmt.Sprintf("%s: withheld: %s", r.Device, r.Why) }

// Grant is the set of device nodes and mounts that the container may have.
type Grant struct {
	Nodes    []cdispec.DeviceNode
	Mounts   []cdispec.Mount
	Refusals []Refusal

	// SocketDir is the host directory in Mounts for the socket, symbolic links resolved; "" = none. Its base name
	// contains the pod's UID or container ID, so the path can be the ID of the pod's lease.
	SocketDir string

	IOMMUGroup string // group whose device node is in Nodes, such as "15"; "" = none
}

// InUserNamespace moves device nodes that a container in a user namespace cannot open to the refusals.
func (g *Grant) InUserNamespace() {
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n cdispec.DeviceNode) bool {
		r := RefuseInUserNamespace(n)
		if r != nil {
			g.Refusals = append(g.Refusals, *r)
		}
		return r != nil
	})
}

// RefuseInUserNamespace returns a refusal if a container in a user namespace cannot open the device node, else
// nil. The node's owner has no user ID in the namespace, so the permissions for other users decide.
func RefuseInUserNamespace(n cdispec.DeviceNode) *Refusal {
	const forOthers = 0o006
	if n.Perm&forOthers == forOthers {
		return nil
	}
	return &Refusal{n.Path, fmt.Sprintf("it has mode %04o on the host; a pod in a user namespace needs read and write permission for other users", n.Perm),
		"set its mode to 0666 on the host, or set hostUsers: true in the pod"}
}

// Nodes returns the device node at a path below /dev, or fs.ErrNotExist.
type Nodes func(path string) (cdispec.DeviceNode, error)

// NodesBelow returns Nodes for the host whose root is mounted at a path; "" = this mount namespace. The /dev
// of a container lacks device nodes that were created after its start.
func NodesBelow(root string) Nodes {
	return func(path string) (cdispec.DeviceNode, error) {
		stat, err := os.Stat(filepath.Join("/", root, path))
		if err != nil {
			return cdispec.DeviceNode{}, err
		}
		raw, ok := stat.Sys().(*syscall.Stat_t)
		if !ok || stat.Mode()&os.ModeDevice == 0 {
			return cdispec.DeviceNode{}, fmt.Errorf("it has mode %s", stat.Mode())
		}
		n := cdispec.DeviceNode{
			Path: path, Type: "b", Major: int64(unix.Major(raw.Rdev)), Minor: int64(unix.Minor(raw.Rdev)),
			Perm: stat.Mode().Perm(), UID: raw.Uid, GID: raw.Gid,
		}
		if stat.Mode()&os.ModeCharDevice != 0 {
			n.Type = "c"
		}
		return n, nil
	}
}

// Granter decides for one pod, using the host's /sys and the node's settings.
type Granter struct {
	Sys      *sysfs.FS
	Nodes    Nodes
	Settings config.Node // AllowedDevices and SocketDirs are the policy

	// Pod is the pod of the containers. The name of a socket directory must contain its ID.
	Pod pod.Identity
	// SocketDir is the host directory of a socket; "" = same path as in the container.
	SocketDir string
	// Leased reports whether the pod has an exclusive lease of a device: a sysfs.Object.ID or an ID such
	// as "iommu-15". nil = the caller will take leases of the granted devices.
	Leased func(id string) bool
	// DeviceIDs name the device of an attachment for [Granter.ForInterface]; nil = it has an interface in the pod. An SF without
	// one would be taken for the function in its device-info file.
	DeviceIDs []config.NamedID
	// Claimed is the PCI address or auxiliary device that a resource claim allocates to the pod alone; "" = none. The claim is a request for the device nodes of RDMA verbs, uverbs and rdma_cm, also without an interface in
	// the pod. It is none for any other device node.
	Claimed string
}

// For returns the grant for a device that a Finder has found. info is the description from the Finder, or one
// that agrees with it. For returns an error only if it cannot read the kernel's state.
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

// ForInterface is like [Granter.For], for an interface after ADD. The interface is in the network namespace at
// the path netns, and info is the content of the device-info file. If the file describes a device other than the
// interface's, only AllowedDevices can allow it.
//
// ForInterface returns link.ErrNoNetns, or an error if it cannot read the kernel's state.
func (g Granter) ForInterface(finder *discovery.Finder, netns, ifName string, info *devinfo.Info) (Grant, error) {
	// Search with all options, to find out whether other interfaces share the device.
	search := *finder
	search.Eswitches = nil // containers never get representors
	found, err := search.Find(discovery.Target{DeviceIDs: g.DeviceIDs, Existing: info, Netns: netns, IfName: ifName, FollowLower: true, SubfunctionParent: true})
	if _, conflict := errors.AsType[*discovery.ConflictError](err); conflict {
		found, err = &discovery.Device{}, nil
	}
	if err != nil {
		return Grant{}, err
	}
	return g.For(found, info)
}

type offer struct {
	Granter
	Grant
	found *discovery.Device
}

func (o *offer) refuse(device, why, remedy string) {
	o.Refusals = append(o.Refusals, Refusal{device, why, remedy})
}

// add adds the device nodes if it can read all of them. Otherwise it adds none, and returns the path of the first
// failure and the error.
func (o *offer) add(paths ...string) (missing string, err error) {
	var nodes []cdispec.DeviceNode
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

// socket adds the directory of a socket, given by its path in the container. The socket need not exist yet,
// because the container or its peer may create it later.
//
// The container runtime later mounts the directory by its path. Until then a user with write permission in the
// parent directory could replace it by a link. The parent must therefore be one of socketDirs, which are not
// mounted into containers. The directory's name must contain the pod's ID. socket checks the name before it
// accesses the file system, so that its errors do not reveal which paths exist on the node.
func (o *offer) socket(socket string) {
	device := "the socket " + socket
	inside := path.Dir(path.Clean(socket))
	if !path.IsAbs(socket) || inside == "/" {
		o.refuse(device, "its path in the container must be absolute and not directly in /", "declare a socket path in a directory of its own")
		return
	}
	outside := path.Clean(cmp.Or(o.Granter.SocketDir, inside))
	roots := socketRoots(o.Settings.SocketDirs)
	owns := func(dir string) bool { return slices.Contains(roots, path.Dir(dir)) && o.Pod.Owns(path.Base(dir)) }
	if !owns(outside) {
		remedy := `use a directory with {podUID} or {containerID:12} in its name; if the host's path differs from the container's, set it in "cdi": {"socketDir": …}`
		parent := path.Dir(outside)
		below := func(root string) bool { return strings.HasPrefix(parent+"/", root+"/") }
		if path.IsAbs(parent) && parent != "/" && o.Pod.Owns(path.Base(outside)) && !slices.ContainsFunc(roots, below) {
			remedy = fmt.Sprintf("add %s to socketDirs in the node's settings, if no container can write to it; or use a directory directly below one of socketDirs", parent)
		}
		o.refuse(device, fmt.Sprintf("%s is not directly below one of socketDirs (%s), or its name does not contain this pod's ID", outside, strings.Join(o.Settings.SocketDirs, ", ")), remedy)
		return
	}
	dir, err := resolve(outside)
	if err != nil {
		o.refuse(device, fmt.Sprintf("the host's directory %s: %v", outside, err), `let a plugin in "delegates" create it, or mount the switch's directory into the pod as a volume`)
		return
	}
	if !owns(dir) || path.Base(dir) != path.Base(outside) {
		o.refuse(device, outside+" is a symbolic link to another directory", "replace it by a directory")
		return
	}
	o.Mounts = append(o.Mounts, cdispec.Mount{Host: dir, Container: inside})
	o.Grant.SocketDir = dir
}

// socketRoots returns the cleaned socketDirs, and the targets of links among them, such as /var/run.
func socketRoots(dirs []string) (roots []string) {
	for _, dir := range dirs {
		roots = append(roots, path.Clean(dir))
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			roots = append(roots, resolved)
		}
	}
	return roots
}

// resolve returns the path of an existing directory, links resolved. Its error does not contain the path.
func resolve(dir string) (string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err == nil {
		var stat fs.FileInfo
		if stat, err = os.Lstat(resolved); err == nil && !stat.IsDir() {
			err = syscall.ENOTDIR
		}
	}
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		err = at.Err
	}
	return resolved, err
}
