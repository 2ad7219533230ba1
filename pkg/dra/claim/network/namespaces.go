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

	open sync.Map // by sandbox, an *os.File
}

// Hold opens the network namespace of a sandbox, unless it is open already.
func (n *Namespaces) Hold(sandbox, path string) error {
	if _, held := n.open.Load(sandbox); held {
		return nil
	}
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0) // the path may be a FIFO by now
	if err == nil {
		err = n.Check(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	}
	if err == nil {
		if _, held := n.open.LoadOrStore(sandbox, file); !held {
			return nil
		}
	}
	_ = file.Close() // it was only read
	return err
}

// Close closes the network namespace of a sandbox. If nothing else holds it, the kernel ends it and returns its devices.
func (n *Namespaces) Close(sandbox string) {
	if file, held := n.open.LoadAndDelete(sandbox); held {
		_ = file.(*os.File).Close()
	}
}

// CloseAll closes all of them.
func (n *Namespaces) CloseAll() {
	for sandbox := range n.open.Range {
		n.Close(sandbox.(string))
	}
}

// Path returns a path below root that leads to the open network namespace of a sandbox, or "" if it is not open or root
// has no /proc. Root has a process ID of its own for this process if it is the root directory of another PID namespace.
func (n *Namespaces) Path(root, sandbox string) string {
	file, held := n.open.Load(sandbox)
	if !held {
		return ""
	}
	self, _ := os.Readlink(filepath.Join("/", root, "proc/self")) // without it, the path does not exist
	path := fmt.Sprintf("/proc/%s/fd/%d", self, file.(*os.File).Fd())
	if _, err := os.Stat(filepath.Join("/", root, path)); err != nil {
		return ""
	}
	return path
}
