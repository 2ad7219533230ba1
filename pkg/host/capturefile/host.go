// Package capturefile reads a host's device tree from a text file, the capture, so that discovery can be tested on,
// and explained for, another machine.
//
// A capture is a txtar archive. Its first line names the machine and its kernel, or contains "from documentation" if
// the content does not come from a kernel. The entries are
//
//	-- sys/devices/pci0000:00/0000:01:00.0/vendor --                    a file
//	-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/… --        a symbolic link
//	-- sys/class/net/eth0/phys_switch_id !EOPNOTSUPP --                 a file that opens, but fails to read
//	-- sys/class/infiniband/ --                                         an empty directory
//	-- netlink/ip-link.json --                                          output in iproute2's format
//
// These files are below netlink/:
//
//   - ip-link.json and pod-ip-link.json: ip -d -j link on the host and in the pod, with ethtool's bus-info as bus_info
//   - devlink-port.json: devlink port -j
//   - devlink-eswitch.json: devlink dev eswitch show -j for all devices, in one object
//   - vdpa-config.json: vdpa dev config show -j
//   - uplinks.json, a format of this package: the names of the interfaces with a default route
//   - advertised.json, a format of this package: those of the uplinks whose default routes all come from router advertisements
//   - uses.json, a format of this package: an address or route of other interfaces
//   - netns.json, a format of this package, instead of pod-ip-link.json in captures with attachments: the interfaces of
//     each network namespace by path, or null if it could not be entered
//
// A file is missing if the kernel has no such family, or if the capture is older than the file.
//
// Entries that do not come from the kernel are
//
//	-- node/node.json --                                        boot, time and node settings
//	-- node/live.json --                                        other facts that devinfoctl doctor reads from a node
//	-- root/var/lib/cni/devinfo/attachments/net@c0ffee@eth0 --  a file of the host, by path
//	-- root/var/run/cdi/odd.json base64 --                      a binary file
//
// The package does not read the running machine; package sysfs does.
package capturefile

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"golang.org/x/tools/txtar"

	"devinfo-cni.io/pkg/host/store"
)

// Host is a captured host. It is immutable and may be read concurrently.
type Host struct {
	Comment string // the text before the first entry; its first line names the machine and the kernel

	root  *node // /sys
	rest  *node // /, without /sys
	files map[string][]byte
}

const largest = 256 << 20

// Load reads a capture. It refuses a file without entries, because any text file would otherwise be a valid capture.
func Load(name string) (*Host, error) {
	data, err := store.ReadFile(name, largest)
	if err != nil {
		return nil, err
	}
	h, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(h.root.entries)+len(h.rest.entries)+len(h.files) == 0 {
		return nil, fmt.Errorf("%s: not a capture, because it has no entries", name)
	}
	return h, nil
}

// Parse parses a capture. Errors contain the line number.
func Parse(data []byte) (*Host, error) {
	ar := txtar.Parse(data)
	first, _, _ := bytes.Cut(ar.Comment, []byte("\n"))
	if len(bytes.TrimSpace(first)) == 0 {
		return nil, errors.New("line 1: does not name a machine and its kernel")
	}
	h := &Host{
		Comment: strings.TrimSpace(string(ar.Comment)),
		root:    newDir("."),
		rest:    newDir("."),
		files:   make(map[string][]byte),
	}
	line := 1
	for text := range bytes.Lines(data) {
		if bytes.HasPrefix(text, []byte("-- ")) && len(txtar.Parse(text).Files) == 0 { // txtar takes it for content
			return nil, fmt.Errorf("line %d: starts like an entry, but does not end in \" --\"", line)
		}
		line++
	}
	line = 1 + bytes.Count(ar.Comment, []byte("\n"))
	for _, f := range ar.Files {
		if err := h.add(f.Name, f.Data); err != nil {
			return nil, fmt.Errorf("line %d: entry %q: %w", line, f.Name, err)
		}
		line += 1 + bytes.Count(f.Data, []byte("\n"))
	}
	return h, nil
}

// File returns the content of a file outside sys/ and root/, such as "netlink/ip-link.json" or "node/node.json", or
// nil. The caller must not modify it.
func (h *Host) File(name string) []byte { return h.files[name] }

// Netlink returns the content of the files below netlink/ by name, such as "ip-link.json". The caller must not modify it.
func (h *Host) Netlink() map[string][]byte {
	parts := map[string][]byte{}
	for name, data := range h.files {
		if part, is := strings.CutPrefix(name, "netlink/"); is {
			parts[part] = data
		}
	}
	return parts
}

func (h *Host) add(entry string, data []byte) error {
	name, leaf, err := parseEntry(entry, data)
	if err != nil {
		return err
	}
	top, below, _ := strings.Cut(name, "/")
	switch {
	case !fs.ValidPath(name):
		return fmt.Errorf("%q is not a clean relative path", name)
	case top == "sys" && (below != "" || leaf.IsDir()):
		return h.root.insert(below, leaf)
	case top == "root" && below != "" && leaf.errno == 0:
		if leaf.target != "" && !staysBelow(path.Dir(below), leaf.target) {
			return fmt.Errorf("the link leads out of root/: %q", leaf.target)
		}
		return h.rest.insert(below, leaf)
	case (top == "netlink" || top == "node") && path.Ext(below) == ".json" && leaf.mode.IsRegular() && leaf.errno == 0:
		return h.addJSON(name, leaf.data)
	}
	return errors.New("must be below sys/, a file, link or directory below root/, or a file netlink/*.json or node/*.json")
}

// staysBelow reports whether a link in dir leads to a path below root/, regardless of other links, so that a reader
// of an unpacked capture stays in its directory.
func staysBelow(dir, target string) bool {
	up := 0
	for strings.HasPrefix(target, "../") {
		target, up = target[len("../"):], up+1
	}
	return fs.ValidPath(target) && dir != "." && up <= strings.Count(dir, "/")+1
}

func (h *Host) addJSON(name string, data []byte) error {
	if _, again := h.files[name]; again {
		return errors.New("appears twice")
	}
	var syntax *json.SyntaxError // any has no other errors
	if err := json.Unmarshal(data, new(any)); errors.As(err, &syntax) {
		return fmt.Errorf("line %d of the entry: %w", 1+bytes.Count(data[:syntax.Offset], []byte("\n")), err)
	}
	h.files[name] = data
	return nil
}

func parseEntry(entry string, data []byte) (string, *node, error) {
	blank := len(bytes.TrimSpace(data)) == 0
	if name, target, ok := strings.Cut(entry, " -> "); ok {
		if target == "" || !blank {
			return "", nil, errors.New("a link needs a target and no content")
		}
		return name, &node{mode: fs.ModeSymlink, target: target}, nil
	}
	if name, errname, ok := strings.Cut(entry, " !"); ok {
		errno, known := errnos[errname]
		if !known || !blank {
			return "", nil, errors.New("a failing file needs a known error such as EOPNOTSUPP and no content")
		}
		return name, &node{errno: errno}, nil
	}
	if name, ok := strings.CutSuffix(entry, " base64"); ok {
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data)))
		return name, &node{data: decoded}, err
	}
	if name, ok := strings.CutSuffix(entry, "/"); ok {
		if !blank {
			return "", nil, errors.New("a directory has no content")
		}
		return name, newDir(""), nil
	}
	return entry, &node{data: data}, nil
}

// ErrorName returns the name that an entry has after "!" for an error of reading a file. ok is false if entries do
// not support the error.
func ErrorName(err error) (name string, ok bool) {
	for name, errno := range errnos {
		if errors.Is(err, errno) {
			return name, true
		}
	}
	return "", false
}

// errnos are the errors that device attributes return.
var errnos = map[string]syscall.Errno{
	"EACCES": syscall.EACCES, "EAGAIN": syscall.EAGAIN, "EBUSY": syscall.EBUSY, "EINVAL": syscall.EINVAL,
	"EIO": syscall.EIO, "ENODATA": syscall.ENODATA, "ENODEV": syscall.ENODEV, "ENOENT": syscall.ENOENT,
	"ENXIO": syscall.ENXIO, "EOPNOTSUPP": syscall.EOPNOTSUPP, "EPERM": syscall.EPERM, "ETIMEDOUT": syscall.ETIMEDOUT,
}
