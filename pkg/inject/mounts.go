package inject

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/cdispec"
)

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

func isReadOnly(m *api.Mount) bool {
	return slices.Contains(m.GetOptions(), "ro") || slices.Contains(m.GetOptions(), "rro")
}

// inTheWay returns a mount that prevents a mount at destination: one at or below destination, or a
// read-only one above it. It returns nil if destination is free.
func inTheWay(mounts []*api.Mount, destination string) *api.Mount {
	want := canonical(destination)
	for _, m := range mounts {
		is := canonical(m.GetDestination())
		if is == want || below(is, want) || below(want, is) && isReadOnly(m) && is != "/" {
			return m
		}
	}
	return nil
}

// sharedAbove returns a mount above destination that the container shares with the node (mountPropagation
// Bidirectional), or nil. A mount below it would appear on the node too and hide the files of all other
// pods.
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
