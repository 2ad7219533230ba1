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

	"devinfo-cni.io/pkg/core/cdispec"
)

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
