package network

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Namespaces keeps the network namespaces of sandboxes open from ADD until DEL has ended, because a runtime may remove a
// namespace earlier: CRI-O does so before it reports the end of the sandbox.
type Namespaces struct {
	Check func(path string) error // normally [link.CheckNetns]

	mu   sync.Mutex
	open map[string]*os.File // by sandbox
}

// Hold opens the network namespace of a sandbox, unless it is open already.
func (n *Namespaces) Hold(sandbox, path string) error {
	if n.held(sandbox) != nil {
		return nil
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // the path may be a FIFO by now
	if err == nil {
		err = n.Check(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil || n.open[sandbox] != nil {
		_ = file.Close()
		return err
	}
	if n.open == nil {
		n.open = map[string]*os.File{}
	}
	n.open[sandbox] = file
	return nil
}

func (n *Namespaces) held(sandbox string) *os.File {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.open[sandbox]
}

// Close closes the network namespace of a sandbox. If nothing else holds it, the kernel ends it and returns its devices.
func (n *Namespaces) Close(sandbox string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if file := n.open[sandbox]; file != nil {
		_ = file.Close() // it was only read
		delete(n.open, sandbox)
	}
}

// CloseAll closes all of them.
func (n *Namespaces) CloseAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, file := range n.open {
		_ = file.Close()
	}
	clear(n.open)
}

// Path returns a path below root that leads to the open network namespace of a sandbox, or "" if it is not open or root
// has no /proc. Root has a process ID of its own for this process if it is the root directory of another PID namespace.
func (n *Namespaces) Path(root, sandbox string) string {
	file := n.held(sandbox)
	if file == nil {
		return ""
	}
	self, err := os.Readlink(filepath.Join("/", root, "proc/self"))
	if err != nil {
		return ""
	}
	path := fmt.Sprintf("/proc/%s/fd/%d", self, file.Fd())
	if _, err := os.Stat(filepath.Join("/", root, path)); err != nil {
		return ""
	}
	return path
}
