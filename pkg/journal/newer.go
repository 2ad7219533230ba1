package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"devinfo-cni.io/devinfo/store"
)

// EnsureDir creates the state directory if it does not exist. It returns an error if it cannot, for example in a
// container that does not mount the directory. All and Newer would return no entries there, and no error.
func (j *Journal) EnsureDir() error {
	stat, err := os.Stat(j.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = j.entries.Make()
	case err == nil && !stat.IsDir():
		err = syscall.ENOTDIR
	}
	if err != nil {
		return fmt.Errorf("stateDir: %s does not exist and cannot be created: %v: mount it into the container at that path, or make it a directory that root can write to", j.dir, err)
	}
	return nil
}

// Newer returns the pods, as namespace/name, whose entries have a format above the given one. If an entry does
// not name its pod, the list contains the attachment's key. Newer ignores corrupt entries.
func (j *Journal) Newer(than int) (pods []string, err error) {
	keys, err := j.All()
	if err != nil {
		return nil, err
	}
	for _, k := range keys {
		e, err := j.Get(k)
		newer, ok := errors.AsType[*FormatError](err)
		switch {
		case ok && newer.Format > than:
			pods = append(pods, cmp.Or(newer.Pod, k.String()))
		case ok, errors.As(err, new(*store.CorruptError)):
		case err != nil:
			return nil, err
		case e != nil && e.Format > than:
			pods = append(pods, cmp.Or(e.pod(), k.String()))
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods), nil
}
