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

	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/pod"
)

// socket hands over the directory of a socket, which need not exist yet: whichever
// side makes it makes it there. The path is the container's.
//
// It is the container runtime that mounts the directory, later, by its path. Whoever
// may write to the directory above it can put a link in its place until then, so this
// must be one of socketDirs, which no container has. Only its name shows that the directory
// is this pod's, and the name is checked before the file system is: nobody learns by asking
// what else is on the node.
func (o *offer) socket(socket string) {
	device := "the socket " + socket
	inside := path.Dir(path.Clean(socket))
	if !path.IsAbs(socket) || inside == "/" {
		o.refuse(device, "its path in the container must be absolute and not directly in /", "declare a socket path in a directory of its own")
		return
	}
	outside := path.Clean(cmp.Or(o.Granter.SocketDir, inside))
	roots := socketRoots(o.Settings.SocketDirs)
	if !owns(o.Pod, outside, roots) {
		o.refuse(device, fmt.Sprintf("%s is not directly below one of socketDirs (%s), or its name does not contain this pod's ID", outside, strings.Join(o.Settings.SocketDirs, ", ")),
			`use a directory with {podUID} or {containerID:12} in its name; if the host's path differs from the container's, set it in "cdi": {"socketDir": …}`)
		return
	}
	dir, err := resolve(outside)
	if err != nil {
		o.refuse(device, fmt.Sprintf("the host's directory %s: %v", outside, err), `let a plugin in "delegates" create it, or mount the switch's directory into the pod as a volume`)
		return
	}
	if !owns(o.Pod, dir, roots) || path.Base(dir) != path.Base(outside) {
		o.refuse(device, outside+" is a symbolic link to another directory", "replace it by a directory")
		return
	}
	o.Mounts = append(o.Mounts, cdispec.Mount{Host: dir, Container: inside})
	o.Grant.SocketDir = dir
}

// owns says whether a clean path can be that of a directory for the pod's sockets: it
// is directly below one of roots, and by its name no other pod's.
func owns(p pod.Identity, dir string, roots []string) bool {
	return slices.Contains(roots, path.Dir(dir)) && p.Owns(path.Base(dir))
}

// socketRoots are socketDirs, clean, and where their links lead: /var/run is one.
func socketRoots(dirs []string) (roots []string) {
	for _, dir := range dirs {
		roots = append(roots, path.Clean(dir))
		if resolved, err := filepath.EvalSymlinks(dir); err == nil {
			roots = append(roots, resolved)
		}
	}
	return roots
}

// resolve follows the links of a directory that exists. Its error leaves out the path.
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
