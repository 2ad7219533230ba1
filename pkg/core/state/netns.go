package state

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"devinfo-cni.io/pkg/host/store"
)

// ErrNotVisible is the error of [Netns.Holds] in a container that does not mount the kubelet's directory, such as devinfo-agent's.
var ErrNotVisible = errors.New("the records of cni-dra-driver are not visible here")

// Netns knows in which network namespaces cni-dra-driver has still to run DEL. It reads the records again only if one of them
// was written since, so that the cost of asking for many attachments is linear.
type Netns struct {
	mu      sync.Mutex
	dir     string
	written time.Time // when the directory was last changed; zero = not known
	held    map[string]bool
	err     error
}

// Holds reports whether the driver, whose records are in dir, has still to run DEL in a network namespace of this boot.
// The namespace then exists although no path leads to it: the driver holds it open. If dir is "", there are no records.
func (n *Netns) Holds(dir, bootID, netns string) (bool, error) {
	if dir == "" {
		return false, nil
	}
	if !Visible(dir) {
		return false, fmt.Errorf("%s: %w", dir, ErrNotVisible)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var written time.Time
	if stat, err := os.Stat(dir); err == nil && time.Since(stat.ModTime()) > time.Second { // else it may change without a trace
		written = stat.ModTime()
	}
	if written.IsZero() || dir != n.dir || !written.Equal(n.written) {
		n.dir, n.written = dir, written
		if n.held, n.err = heldIn(store.Private(dir), bootID); n.err != nil {
			n.written = time.Time{} // what could not be read may be readable next time
		}
	}
	if n.held[netns] {
		return true, nil
	}
	return false, n.err
}

func heldIn(files *store.Dir, bootID string) (held map[string]bool, err error) {
	names, err := files.Names()
	errs := []error{err}
	held = map[string]bool{}
	for _, name := range names {
		uid, ok := RecordOf(name)
		if !ok {
			continue
		}
		c, err := read(files, uid)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) { // removed since
				errs = append(errs, err)
			}
			continue
		}
		for _, at := range c.Attachments {
			held[at.Netns] = held[at.Netns] || at.HasNetns(bootID)
		}
	}
	return held, errors.Join(errs...)
}

// Visible reports whether this process would see records in dir if there were any: the directory of the kubelet's plugins,
// which the kubelet always creates, exists.
func Visible(dir string) bool {
	_, err := os.Lstat(filepath.Dir(filepath.Dir(dir)))
	return !errors.Is(err, fs.ErrNotExist)
}
