package grant

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/cdispec"
)

// socket hands over the directory of a socket, which need not exist yet: whichever
// side makes it makes it there. The path is the container's.
//
// What is mounted is the directory that was looked at, by its path without links. It
// is the container runtime that mounts it, later: who may write to a directory above
// it, up to the one in socketDirs, can put another in its place meanwhile. So that no
// container is such a one, a socket's directory should not be below another's.
func (o *offer) socket(socket string) {
	device := "the socket " + socket
	inside := path.Dir(path.Clean(socket))
	if !path.IsAbs(socket) || inside == "/" {
		o.refuse(device, "its path in the container is not absolute, or in /, which cannot be mounted over", "declare the path of a socket in a directory of its own")
		return
	}
	outside := o.SocketDir
	if outside == "" {
		outside = inside
	}
	dir, err := resolve(outside)
	if err != nil {
		o.refuse(device, fmt.Sprintf("the host's directory %s: %v", outside, err),
			`make it before the pod starts; if the host has the socket elsewhere, name that directory by "cdi": {"socketDir": …}`)
		return
	}
	if why, remedy := o.Policy.checkSocketDir(dir); why != "" {
		if dir != outside {
			why = fmt.Sprintf("%s is a link: %s", outside, why)
		}
		o.refuse(device, why, remedy)
		return
	}
	o.Mounts = append(o.Mounts, cdispec.Mount{Host: dir, Container: inside})
}

// resolve follows the links of a directory that exists.
func resolve(dir string) (string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", reason(err)
	}
	stat, err := os.Stat(resolved)
	if err != nil {
		return "", reason(err)
	}
	if !stat.IsDir() || !filepath.IsAbs(resolved) {
		return "", errors.New("is no directory with an absolute path")
	}
	return resolved, nil
}

// reason is the cause without the path, which has been said.
func reason(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// checkSocketDir says why a directory, its links resolved, may not be mounted. The
// directories of socketDirs themselves may not, nor what is above one of them: every
// attachment's sockets are there.
func (p Policy) checkSocketDir(dir string) (why, remedy string) {
	allowed := slices.Clone(p.SocketDirs)
	for n, root := range allowed {
		if resolved, err := resolve(root); err == nil {
			allowed[n] = resolved
		}
	}
	isBelow := func(root string) bool { return below(dir, root) }
	holds := func(root string) bool { return dir == root || below(root, dir) }
	switch {
	case slices.ContainsFunc(allowed, holds):
		return fmt.Sprintf("%s holds the sockets of other pods too", dir), "give each socket a directory of its own below it"
	case !slices.ContainsFunc(allowed, isBelow):
		return fmt.Sprintf("%s is below none of the directories of socketDirs: %s", dir, strings.Join(p.SocketDirs, ", ")),
			"add a directory above it to socketDirs in the node settings"
	}
	return "", ""
}

func below(dir, root string) bool {
	return dir != root && strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/")
}
