package inject

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/api"

	"devinfo-cni.io/pkg/cdispec"
)

// What a container has by its pod, its image or CDI stays as it is: the runtime would take
// a mount of ours instead of one with the same destination, put it over one below, and fail
// where it cannot make the mount point.

// spelled gives a clean path as it is with the link /var/run -> /run, which nearly every
// image has.
func spelled(p string) string {
	if p = path.Clean(p); p == "/run" || strings.HasPrefix(p, "/run/") {
		return "/var" + p
	}
	return p
}

// below says whether a clean path is below a directory.
func below(p, dir string) bool { return strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }

func isReadOnly(m *api.Mount) bool {
	return slices.Contains(m.GetOptions(), "ro") || slices.Contains(m.GetOptions(), "rro")
}

// inTheWay is the mount for which a directory cannot be mounted at the destination: one that
// is there, or below it, or read-only above it; nil = there is none.
func inTheWay(mounts []*api.Mount, destination string) *api.Mount {
	want := spelled(destination)
	for _, m := range mounts {
		is := spelled(m.GetDestination())
		if is == want || below(is, want) || below(want, is) && isReadOnly(m) && is != "/" {
			return m
		}
	}
	return nil
}

// sharedAbove is a mount that the container shares with the node (mountPropagation Bidirectional)
// above a destination; nil = there is none. What is mounted below it is mounted on the node too,
// for everyone: our directory would hide the files of all other pods.
func sharedAbove(mounts []*api.Mount, destination string) *api.Mount {
	for _, m := range mounts {
		shared := slices.Contains(m.GetOptions(), "rshared") || slices.Contains(m.GetOptions(), "shared")
		if shared && below(spelled(destination), spelled(m.GetDestination())) {
			return m
		}
	}
	return nil
}

// reached is the path of a socket, declared at a path and in a directory of the host, as mounts
// show it to the container: as declared, if it is there; "" = none shows it.
func reached(mounts []*api.Mount, declared, dir string) (found string) {
	declared = path.Clean(declared)
	dir = spelled(cmp.Or(dir, path.Dir(declared)))
	for _, m := range mounts {
		source := spelled(m.GetSource())
		if source != dir && !below(dir, source) {
			continue
		}
		is := path.Join(path.Clean(m.GetDestination()), strings.TrimPrefix(dir, source), path.Base(declared))
		hidden := func(other *api.Mount) bool { // by a mount inside this one
			on := spelled(other.GetDestination())
			return below(on, spelled(m.GetDestination())) && below(spelled(is), on)
		}
		switch {
		case slices.ContainsFunc(mounts, hidden):
		case spelled(is) == spelled(declared):
			return declared
		default:
			found = cmp.Or(found, is)
		}
	}
	return found
}

// mountPoints are the names of the device-info files that CDI, or the DRA driver, has
// mounted below [cdispec.InfoDir], and all the other mounts. The runtime mounts our directory
// first, read-only, so the names must be there.
func mountPoints(mounts []*api.Mount, deviceInfoDir string) (names []string, others []*api.Mount) {
	for _, m := range mounts {
		destination := path.Clean(m.GetDestination())
		if path.Dir(destination) == cdispec.InfoDir && below(spelled(m.GetSource()), spelled(deviceInfoDir)) {
			names = append(names, path.Base(destination))
		} else {
			others = append(others, m)
		}
	}
	return names, others
}
