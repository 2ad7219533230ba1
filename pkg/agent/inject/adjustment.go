package inject

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/nri"
	"devinfo-cni.io/pkg/core/pod"
	"devinfo-cni.io/pkg/host/link"
)

// adjustment collects the additions to one container. It skips what the container has already, or was given before:
// NRI rejects a container if the same item is added twice.
type adjustment struct {
	*api.ContainerAdjustment
	container *api.Container
	mounts    []*api.Mount // mounts of the container and of the adjustment, except CDI's device-info files
	userns    bool         // the container has its own user namespace
	withheld  []withheld
}

// newAdjustment returns an empty adjustment of c. mounts are those of c without CDI's device-info files.
func newAdjustment(p *api.PodSandbox, c *api.Container, mounts []*api.Mount) *adjustment {
	userns := nri.Namespace("user", p.GetLinux().GetNamespaces(), c.GetLinux().GetNamespaces()) != nil
	return &adjustment{ContainerAdjustment: &api.ContainerAdjustment{}, container: c, mounts: mounts, userns: userns}
}

type withheld struct {
	cause Withheld
	grant.Refusal
}

func (a *adjustment) withhold(cause Withheld, what, why, remedy string) {
	a.withheld = append(a.withheld, withheld{cause, grant.Refusal{Device: what, Why: why, Remedy: remedy}})
}

// grants adds what package grant allows for the attachments of a sandbox.
func (p *Plugin) grants(g *adjustment, settings config.Node, of pod.Identity, netns string, nics []nic) error {
	by := grant.Granter{Sys: p.Finder.Sys, Nodes: grant.NodesBelow(p.HostRoot), Settings: settings, Pod: of}
	leases := journal.Open(settings.StateDir, p.BootID)
	for _, n := range nics {
		if n.info == nil || !settings.InjectDeviceNodes && !discovery.IsSocket(n.info.Type) {
			continue
		}
		by.SocketDir, by.DeviceIDs = n.entry.HostSocketDir(), n.entry.Requested.DeviceIDs
		by.Leased = func(id string) bool {
			bus, name, _ := strings.Cut(id, "-")
			inode, _, err := p.Finder.Sys.Inode(bus, name) // IOMMU groups have no inode
			return err == nil && leases.Has(n.entry, id, inode)
		}
		granted, err := by.ForInterface(p.Finder, netns, n.Interface, n.info)
		if errors.Is(err, link.ErrNoNetns) {
			err = fmt.Errorf("%w: mount the node's network namespaces into the agent", err)
		}
		if discovery.IsSocket(n.info.Type) && reached(g.mounts, discovery.Identity(n.info), by.SocketDir) != "" {
			granted.Refusals = nil // the pod already mounts the socket
		}
		if facts := n.info.Texts(); err == nil { // the container, not its peer, may create the socket
			err = g.granted(granted, facts["mode"] == "server" || facts["role"] == "master")
		}
		if err != nil {
			return fmt.Errorf("interface %s: %w", n.Interface, err)
		}
	}
	return nil
}

// granted adds the device nodes and directories of one grant, and records its refusals. The container creates the socket in
// the directories if makesSocket.
func (a *adjustment) granted(by grant.Grant, makesSocket bool) error {
	for _, r := range by.Refusals {
		a.withheld = append(a.withheld, withheld{ByPolicy, r})
	}
	for _, n := range by.Nodes {
		a.node(n)
	}
	for _, m := range by.Mounts {
		stat, err := os.Stat(m.Host)
		if err != nil {
			return err
		}
		a.directory(m, stat.Mode().Perm(), makesSocket)
	}
	return nil
}

// variables adds the variables of all attachments, and if mounted is true, those with paths of device-info files.
func (a *adjustment) variables(nics []nic, mounted bool) {
	var infos []*devinfo.Info
	for _, n := range nics {
		infos = append(infos, n.info)
		prefix := cdispec.Variable(n.Interface)
		if mounted && n.DeviceInfo != nil {
			a.variable(prefix + "=" + cdispec.InfoFile(n.Interface))
		}
		for _, fact := range cdispec.Variables(prefix, n.info, func(socket string) string { return reached(a.mounts, socket, n.entry.HostSocketDir()) }) {
			a.variable(fact)
		}
	}
	if all := cdispec.RDMADevices(infos); all != "" {
		a.variable(all)
	}
}

// mount adds a mount. It returns false and records the reason if another mount of the container prevents it.
func (a *adjustment) mount(m cdispec.Mount) bool {
	what := "the directory " + m.Container
	if other := sharedAbove(a.mounts, m.Container); other != nil {
		a.withhold(ByPropagation, what,
			"the container's mount at "+other.GetDestination()+" has mountPropagation Bidirectional, so the directory would also be mounted on the node, over other pods' files",
			"set mountPropagation HostToContainer on that mount, or mount a smaller directory")
		return false
	}
	if other := inTheWay(a.mounts, m.Container); other != nil {
		a.withhold(ByMount, what, "the container has a mount at "+other.GetDestination(), "remove that mount")
		return false
	}
	given := &api.Mount{Destination: m.Container, Type: "bind", Source: m.Host, Options: m.Options()}
	a.AddMount(given)
	a.mounts = append(a.mounts, given)
	return true
}

// variable adds a variable, given as KEY=VALUE, unless the container has the key.
func (a *adjustment) variable(v string) {
	key, value, _ := strings.Cut(v, "=")
	if !slices.ContainsFunc(a.container.GetEnv(), func(has string) bool { return strings.HasPrefix(has, key+"=") }) {
		a.AddEnv(key, value)
	}
}

func (a *adjustment) node(n cdispec.DeviceNode) {
	has := func(d *api.LinuxDevice) bool { return d.GetPath() == n.Path }
	if slices.ContainsFunc(a.container.GetLinux().GetDevices(), has) || slices.ContainsFunc(a.GetLinux().GetDevices(), has) {
		return
	}
	if refused := grant.RefuseInUserNamespace(n); a.userns && refused != nil {
		a.withheld = append(a.withheld, withheld{ByUserNamespace, *refused})
		return
	}
	if user := a.container.GetUser(); user != nil { // nil with runtimes whose NRI predates this field
		n.UID, n.GID = user.GetUid(), user.GetGid() // the CDI library does the same; otherwise only root could open it
	}
	a.AddDevice(&api.LinuxDevice{
		Path: n.Path, Type: n.Type, Major: n.Major, Minor: n.Minor,
		FileMode: api.FileMode(n.Perm), Uid: api.UInt32(n.UID), Gid: api.UInt32(n.GID),
	})
}

// directory adds the directory of a socket, which the container creates if makesSocket. perm is its mode on the host.
func (a *adjustment) directory(d cdispec.Mount, perm fs.FileMode, makesSocket bool) {
	if slices.ContainsFunc(a.mounts, func(m *api.Mount) bool { return m.GetDestination() == d.Container && m.GetSource() == d.Host }) {
		return // already mounted, for another socket or by CDI
	}
	needs := fs.FileMode(0o001)
	if makesSocket {
		needs = 0o003
	}
	if a.userns && perm&needs != needs {
		a.withhold(ByUserNamespace, "the directory "+d.Host, fmt.Sprintf("it has mode %04o; in the pod's user namespace only its permissions for other users apply", perm),
			fmt.Sprintf("add mode %04o to the directory, or set hostUsers: true in the pod", needs))
		return
	}
	a.mount(d)
}

// netnsOf returns the path of a pod's network namespace, or "" for a pod in the host's network namespace.
func netnsOf(p *api.PodSandbox) string {
	return nri.Namespace("network", p.GetLinux().GetNamespaces()).GetPath()
}

// Mounts that the pod, its image or CDI give to a container must not change. If an added mount
// has the same destination, the runtime replaces the container's mount. If it is above, it hides
// the container's mount. If its parent is read-only, the runtime cannot create the mount point.

// canonical returns the clean path with /run written as /var/run. Nearly every image has the link /var/run ->
// /run, so both spellings mean the same file.
func canonical(p string) string {
	if p = path.Clean(p); p == "/run" || strings.HasPrefix(p, "/run/") {
		return "/var" + p
	}
	return p
}

// below reports whether a clean path is below dir.
func below(p, dir string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

// inTheWay returns a mount at or below destination, or a read-only one above it; nil = destination is free.
func inTheWay(mounts []*api.Mount, destination string) *api.Mount {
	want := canonical(destination)
	for _, m := range mounts {
		is := canonical(m.GetDestination())
		readOnly := slices.Contains(m.GetOptions(), "ro") || slices.Contains(m.GetOptions(), "rro")
		if is == want || below(is, want) || below(want, is) && readOnly && is != "/" {
			return m
		}
	}
	return nil
}

// sharedAbove returns a mount above destination with mountPropagation Bidirectional, or nil. A mount below it would
// appear on the node too and hide the files of all other pods.
func sharedAbove(mounts []*api.Mount, destination string) *api.Mount {
	for _, m := range mounts {
		shared := slices.Contains(m.GetOptions(), "rshared") || slices.Contains(m.GetOptions(), "shared")
		if shared && below(canonical(destination), canonical(m.GetDestination())) {
			return m
		}
	}
	return nil
}

// reached returns the path of a socket in the container, or "" if no mount contains the socket. It prefers the
// declared path if the container has the socket there. declared is the path in the device information. dir is
// the socket's directory on the host; "" = the directory of declared.
func reached(mounts []*api.Mount, declared, dir string) (found string) {
	declared = path.Clean(declared)
	dir = canonical(cmp.Or(dir, path.Dir(declared)))
	for _, m := range mounts {
		source := canonical(m.GetSource())
		if source != dir && !below(dir, source) {
			continue
		}
		is := path.Join(path.Clean(m.GetDestination()), strings.TrimPrefix(dir, source), path.Base(declared))
		hidden := func(other *api.Mount) bool { // whether other, which is mounted below m, hides the socket
			on := canonical(other.GetDestination())
			return below(on, canonical(m.GetDestination())) && below(canonical(is), on)
		}
		switch {
		case slices.ContainsFunc(mounts, hidden):
		case canonical(is) == canonical(declared):
			return declared
		default:
			found = cmp.Or(found, is)
		}
	}
	return found
}

// mountPoints splits the mounts of a container. names are the names of the device-info files that CDI or
// the DRA driver mounts below [cdispec.InfoDir], and others are the remaining mounts. The staged directory
// must contain files with these names, because the runtime mounts the directory first and read-only.
func mountPoints(mounts []*api.Mount, deviceInfoDir string) (names []string, others []*api.Mount) {
	for _, m := range mounts {
		destination := path.Clean(m.GetDestination())
		if path.Dir(destination) == cdispec.InfoDir && below(canonical(m.GetSource()), canonical(deviceInfoDir)) {
			names = append(names, path.Base(destination))
		} else {
			others = append(others, m)
		}
	}
	return names, others
}
