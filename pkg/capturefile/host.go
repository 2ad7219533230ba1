// Package capturefile reads a host's device tree from one text file, so that discovery can be
// tested on, and explained for, another machine.
//
// The file is a txtar archive. Its first line names the machine and its kernel,
// or says "from documentation" where no kernel produced it. The entries are
//
//	-- sys/devices/pci0000:00/0000:01:00.0/vendor --                    a file
//	-- sys/bus/pci/devices/0000:01:00.0 -> ../../../devices/… --        a symbolic link
//	-- sys/class/net/eth0/phys_switch_id !EOPNOTSUPP --                 a file that opens, but fails to read
//	-- sys/class/infiniband/ --                                         a directory with nothing in it
//	-- netlink/ip-link.json --                                          what iproute2 said at that moment
//
// Below netlink/ are ip-link.json and pod-ip-link.json (ip -d -j link, on the
// host and in the pod, with ethtool's bus-info as bus_info), devlink-port.json
// (devlink port -j), devlink-eswitch.json (devlink dev eswitch show -j, all devices
// in one object), vdpa-config.json (vdpa dev config show -j) and, in a form of our own,
// uplinks.json (the names of the interfaces that default routes lead to) and uses.json (what others have: an address, a route). A
// part that is not there means that the kernel has no such family, or that the
// capture is older than the part. Hosts captured with their attachments have
// netns.json, also of our own, in place of pod-ip-link.json: it gives the interfaces
// of each network namespace by its path, or null for one that could not be entered.
//
// Entries that do not come from the kernel are
//
//	-- node/node.json --                                        boot, time and node settings
//	-- node/live.json --                                        what devinfoctl doctor asked the node
//	-- root/var/lib/cni/devinfo/attachments/net@c0ffee@eth0 --  a file of the host, by its path
//	-- root/var/run/cdi/odd.json base64 --                      one that is no text
//
// Do not use the package to read the machine that the program runs on: that is what package
// sysfs is for.
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

	"devinfo-cni.io/devinfo/atomicfile"
)

// Host is a machine as its text file describes it. It does not change after
// Parse, and any number of goroutines may read it.
type Host struct {
	Comment string // the text before the first entry; its first line names machine and kernel

	root  *node // /sys
	rest  *node // /, but for /sys
	files map[string][]byte
}

// largest is the size in bytes of a file that is read: hundreds of hosts fit in.
const largest = 256 << 20

// Load parses the named file, which must have at least one entry: without entries any text
// would pass as a comment.
func Load(name string) (*Host, error) {
	data, err := atomicfile.ReadFile(name, largest)
	if err != nil {
		return nil, err
	}
	h, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(h.root.entries)+len(h.rest.entries)+len(h.files) == 0 {
		return nil, fmt.Errorf("%s: has no entries: it is not a captured host", name)
	}
	return h, nil
}

// Parse reads a host from the text of its file. An error names the line.
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
	if n := brokenMarker(ar.Comment); n >= 0 {
		return nil, fmt.Errorf("line %d: starts like an entry, but does not end in \" --\"", line+n)
	}
	line += bytes.Count(ar.Comment, []byte("\n"))
	for _, f := range ar.Files {
		if err := h.add(f.Name, f.Data); err != nil {
			return nil, fmt.Errorf("line %d: entry %q: %w", line, f.Name, err)
		}
		if n := brokenMarker(f.Data); n >= 0 {
			return nil, fmt.Errorf("line %d: starts like an entry, but does not end in \" --\"", line+1+n)
		}
		line += 1 + bytes.Count(f.Data, []byte("\n"))
	}
	return h, nil
}

// brokenMarker finds the first line that was meant to start an entry. Txtar
// takes it for content, and a fixture would silently lose a file.
func brokenMarker(data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		if bytes.HasPrefix(line, []byte("-- ")) {
			return n
		}
		n++
	}
	return -1
}

// File gives the content of a part outside sys/ and root/, such as
// "netlink/ip-link.json" or "node/node.json", or nil if there is none. Do not
// modify it.
func (h *Host) File(name string) []byte { return h.files[name] }

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
	return errors.New("neither below sys/ nor root/, nor a file netlink/*.json or node/*.json")
}

// staysBelow reports that a link in dir leads to nothing above root/, whatever other links
// it passes: an unpacked link must not lead a reader out of the directory.
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
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("line %d of it: %w", 1+bytes.Count(data[:syntax.Offset], []byte("\n")), err)
		}
		return err
	}
	h.files[name] = data
	return nil
}

// parseEntry tells the five kinds of entry apart by the form of their name.
func parseEntry(entry string, data []byte) (string, *node, error) {
	blank := len(bytes.TrimSpace(data)) == 0
	if name, target, ok := strings.Cut(entry, " -> "); ok {
		if target == "" || !blank {
			return "", nil, errors.New("a link needs a target and no content")
		}
		return name, &node{mode: fs.ModeSymlink | 0o777, target: target}, nil
	}
	if name, errname, ok := strings.Cut(entry, " !"); ok {
		errno, known := errnos[errname]
		if !known || !blank {
			return "", nil, errors.New("a failing file needs a known error such as EOPNOTSUPP and no content")
		}
		return name, &node{mode: 0o444, errno: errno}, nil
	}
	if name, ok := strings.CutSuffix(entry, " base64"); ok {
		decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(data)))
		return name, &node{mode: 0o444, data: decoded}, err
	}
	if name, ok := strings.CutSuffix(entry, "/"); ok {
		if !blank {
			return "", nil, errors.New("a directory has no content")
		}
		return name, newDir(""), nil
	}
	return entry, &node{mode: 0o444, data: data}, nil
}

// ErrorName names the error that reading a file failed with, as an entry writes it behind
// "!"; ok is false for an error that entries cannot express.
func ErrorName(err error) (name string, ok bool) {
	for name, errno := range errnos {
		if errors.Is(err, errno) {
			return name, true
		}
	}
	return "", false
}

// errnos are the errors that attributes of devices are known to fail with.
var errnos = map[string]syscall.Errno{
	"EACCES":     syscall.EACCES,
	"EAGAIN":     syscall.EAGAIN,
	"EBUSY":      syscall.EBUSY,
	"EINVAL":     syscall.EINVAL,
	"EIO":        syscall.EIO,
	"ENODATA":    syscall.ENODATA,
	"ENODEV":     syscall.ENODEV,
	"ENOENT":     syscall.ENOENT,
	"ENXIO":      syscall.ENXIO,
	"EOPNOTSUPP": syscall.EOPNOTSUPP,
	"EPERM":      syscall.EPERM,
	"ETIMEDOUT":  syscall.ETIMEDOUT,
}
