package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"devinfo-cni.io/pkg/host/store"
)

// ErrNotVisible is the error of [Holds] in a container that does not mount the kubelet's directory, such as devinfo-agent's.
var ErrNotVisible = errors.New("the records of cni-dra-driver are not visible here")

// Holds reports whether cni-dra-driver, whose records are in dir, has still to run DEL in a network namespace of this boot.
// The namespace then exists although no path leads to it: the driver holds it open. If dir is "", there are no records.
func Holds(dir, bootID, netns string) (bool, error) {
	if dir == "" {
		return false, nil
	}
	if !Visible(dir) {
		return false, fmt.Errorf("%s: %w", dir, ErrNotVisible)
	}
	files := store.Private(dir)
	names, err := files.Names()
	if err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		uid, ok := RecordOf(name)
		if !ok {
			continue
		}
		c, err := read(files, uid)
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since
		case err != nil:
			errs = append(errs, err)
		case slices.ContainsFunc(c.Attachments, func(a Attachment) bool { return a.Netns == netns && a.HasNetns(bootID) }):
			return true, nil
		}
	}
	return false, errors.Join(errs...)
}

// Visible reports whether this process would see records in dir if there were any: the directory of the kubelet's plugins,
// which the kubelet always creates, exists.
func Visible(dir string) bool {
	_, err := os.Lstat(filepath.Dir(filepath.Dir(dir)))
	return !errors.Is(err, fs.ErrNotExist)
}
