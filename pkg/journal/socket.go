package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"devinfo-cni.io/pkg/private"
)

// A socket directory is claimed by a pod: its attachments may share it, a new sandbox of
// the pod too, until the last of them goes. Each has a link in sockets/<directory>.

// socketName is the directory's path as one path element.
func socketName(dir string) string {
	name := strings.ReplaceAll(strings.TrimPrefix(dir, "/"), "%", "%25")
	return strings.ReplaceAll(name, "/", "%2F")
}

// SocketClaims is [Journal.Claims] for socket directories.
func (j *Journal) SocketClaims(k Key) (list []string, err error) {
	name, err := k.entry()
	if err != nil {
		return nil, err
	}
	dirs, err := j.sockets().Entries()
	for _, d := range dirs {
		dir := "/" + strings.ReplaceAll(strings.ReplaceAll(d.Name(), "%2F", "/"), "%25", "%")
		if _, err := j.users(dir).Readlink(name); err == nil {
			list = append(list, dir)
		}
	}
	return list, err
}

// sockets is the directory of all claims on socket directories.
func (j *Journal) sockets() *private.Dir { return private.Open(filepath.Join(j.dir, "sockets")) }

// users is the directory of the claims on one.
func (j *Journal) users(dir string) *private.Dir {
	return private.Open(j.sockets().Path(socketName(dir)))
}

// claimSockets makes the entry's pod the user of a directory, or one more attachment of
// that pod. It tells whether it made the link or found it.
func (j *Journal) claimSockets(e *Entry, dir string) (made bool, err error) {
	name, err := e.entry()
	if err != nil {
		return false, err
	}
	if err = j.sockets().Make(); err == nil {
		err = j.sockets().Alone(func() error {
			if err := j.vacateSockets(e.Pod, dir); err != nil {
				return err
			}
			err := j.users(dir).Link(name, "../"+target(e.Key))
			made = err == nil
			if errors.Is(err, fs.ErrExist) {
				return nil
			}
			return err
		})
	}
	return made, wrapSockets(dir, err)
}

// vacateSockets removes the claims on a directory that count for nothing. One of another
// pod that counts is an OwnedError.
func (j *Journal) vacateSockets(pod, dir string) error {
	users := j.users(dir)
	entries, err := users.Entries()
	if err != nil {
		return err
	}
	for _, u := range entries {
		k, ok := parseKey(u.Name())
		foreign := false
		if ok {
			ok, err = j.live(k, func(e *Entry) bool {
				foreign = e.Pod != pod
				return uses(e, dir)
			})
		}
		switch {
		case err != nil:
			return err
		case ok && foreign:
			return &OwnedError{"socket directory", dir, k}
		case !ok:
			if err := users.Unlink(u.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func uses(e *Entry, dir string) bool {
	for _, d := range e.socketDirs() {
		if d == dir {
			return true
		}
	}
	return false
}

// releaseSockets ends the attachment's use of a directory.
func (j *Journal) releaseSockets(k Key, dir string) error {
	name, err := k.entry()
	if err != nil {
		return err
	}
	if _, err := j.users(dir).Readlink(name); errors.Is(err, fs.ErrNotExist) {
		return j.dropSockets(dir)
	}
	return wrapSockets(dir, j.sockets().Alone(func() error {
		if err := j.users(dir).Unlink(name); err != nil {
			return err
		}
		return j.dropSockets(dir)
	}))
}

// dropSockets removes the directory of the claims once it is empty.
func (j *Journal) dropSockets(dir string) error {
	path := j.sockets().Path(socketName(dir))
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := syscall.Rmdir(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	return wrapSockets(dir, err)
}

func wrapSockets(dir string, err error) error {
	if owned := new(OwnedError); err == nil || errors.As(err, &owned) { // which says it all
		return err
	}
	return fmt.Errorf("claim of socket directory %s: %w", dir, err)
}
