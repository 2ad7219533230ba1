package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"devinfo-cni.io/devinfo/store"
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
		users, err := j.sockets().Sub(d.Name())
		if err == nil {
			_, err = users.Readlink(name)
		}
		switch {
		case err == nil:
			list = append(list, "/"+strings.ReplaceAll(strings.ReplaceAll(d.Name(), "%2F", "/"), "%25", "%"))
		case !errors.Is(err, fs.ErrNotExist):
			return list, err
		}
	}
	return list, err
}

// sockets is the directory of all claims on socket directories.
func (j *Journal) sockets() *private.Dir { return private.Open(filepath.Join(j.dir, "sockets")) }

// users is the directory of the claims on one.
func (j *Journal) users(dir string) (*private.Dir, error) {
	users, err := j.sockets().Sub(socketName(dir))
	if bad := new(store.NameError); errors.As(err, &bad) {
		bad.Name = dir
	}
	return users, err
}

// claimSockets makes the entry's pod the user of a directory, or one more attachment of
// that pod. It tells whether it made the link or found it.
func (j *Journal) claimSockets(e *Entry, dir string) (made bool, err error) {
	name, err := e.entry()
	if err != nil {
		return false, err
	}
	users, err := j.users(dir)
	if err == nil {
		err = j.sockets().Make()
	}
	if err == nil {
		err = j.sockets().Alone(func() error {
			if err := j.vacateSockets(e, dir, users); err != nil {
				return err
			}
			err := users.Link(name, "../"+target(e.Key))
			made = err == nil
			if made || errors.Is(err, fs.ErrExist) {
				return nil
			}
			_ = dropSockets(users) // it is the first error that tells
			return err
		})
	}
	return made, wrapSockets(dir, err)
}

// vacateSockets removes the claims on a directory that count for nothing. One of another
// pod that counts is an OwnedError; so is that of a newer build, whose pod is not known.
func (j *Journal) vacateSockets(e *Entry, dir string, users *private.Dir) error {
	entries, err := users.Entries()
	if err != nil {
		return err
	}
	for _, u := range entries {
		k, ok := parseKey(u.Name())
		foreign := true
		if ok {
			ok, err = j.live(k, func(other *Entry) bool {
				foreign = k != e.Key && (other.Pod != e.Pod || e.Pod == "")
				return slices.Contains(other.socketDirs(), dir)
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

// releaseSockets ends the attachment's use of a directory.
func (j *Journal) releaseSockets(k Key, dir string) error {
	name, err := k.entry()
	if err != nil {
		return err
	}
	users, err := j.users(dir)
	if err != nil { // no directory can be named that
		return nil
	}
	there, err := os.ReadDir(users.Path(""))
	ours := func(u fs.DirEntry) bool { return u.Name() == name }
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(there) > 0 && !slices.ContainsFunc(there, ours) {
		return nil
	}
	if err == nil {
		err = j.sockets().Alone(func() error {
			if err := users.Unlink(name); err != nil {
				return err
			}
			return dropSockets(users)
		})
	}
	return wrapSockets(dir, err)
}

// dropSockets removes the directory of the claims once it is empty.
func dropSockets(users *private.Dir) error {
	err := syscall.Rmdir(users.Path(""))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return err
}

func wrapSockets(dir string, err error) error {
	if owned := new(OwnedError); err == nil || errors.As(err, &owned) { // which says it all
		return err
	}
	return fmt.Errorf("claim of socket directory %s: %w", dir, err)
}
