// Package cdispec makes the CDI spec of a network attachment: one device of the
// Container Device Interface, whose edits give a container the attachment's device
// nodes, the directory of its socket, its device-info file, and variables that tell of it.
//
// It is pure: it reads and writes nothing, and leaves it to package grant to decide who
// may have what.
package cdispec

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode/utf8"

	"tags.cncf.io/container-device-interface/specs-go"

	"devinfo-cni.io/devinfo"
)

// DefaultKind is the kind of the CDI device where the configuration names none.
const DefaultKind = "devinfo-cni.io/attachment"

// VhostNet is the only node that a device's vhost-net may name.
const VhostNet = "/dev/vhost-net"

// InfoDir is where containers find the device-info files of their attachments.
const InfoDir = "/var/run/k8s.cni.cncf.io/devinfo"

// InfoFile is the path in containers of one interface's device-info file.
func InfoFile(ifName string) string { return path.Join(InfoDir, ifName+".json") }

// Node is a device node, at the same path in the container as on the host.
type Node struct {
	Path         string
	Type         string // "c" or "b"
	Major, Minor int64

	Perm     fs.FileMode // of the host's: the permission bits; no spec says them
	UID, GID uint32      // its owner there
}

// Mount is a file or directory of the host that the container gets.
type Mount struct {
	Host, Container string
	ReadOnly        bool
}

// A Device is a CDI device: all that it can say of one attachment.
type Device struct {
	Kind, Name string        // of the CDI device: vendor/class, and the device's name
	IfName     string        // CNI_IFNAME
	InfoFile   string        // host path of the device-info file; "" = none
	Info       *devinfo.Info // what it says; nil = not known
	Nodes      []Node
	Mounts     []Mount // of its socket: the directory
}

// Spec makes the spec, in the oldest CDI version that can express it. It fails for a kind
// or a name that CDI does not allow, and for a path that JSON cannot hold.
func (a Device) Spec() (*specs.Spec, error) {
	if err := errors.Join(CheckKind(a.Kind), CheckName(a.Name)); err != nil {
		return nil, err
	}
	edits, err := a.edits()
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{Kind: a.Kind, Devices: []specs.Device{{Name: a.Name, ContainerEdits: edits}}}
	spec.Version, err = specs.MinimumRequiredVersion(spec)
	return spec, err
}

// edits always has the environment variable, empty where there is no file: CDI
// refuses a device that edits nothing.
func (a Device) edits() (specs.ContainerEdits, error) {
	mounts, inside := a.Mounts, ""
	if a.InfoFile != "" {
		inside = InfoFile(a.IfName)
		mounts = append([]Mount{{Host: a.InfoFile, Container: inside, ReadOnly: true}}, mounts...)
	}
	socket := func(declared string) string {
		if len(a.Mounts) == 0 {
			return ""
		}
		return declared
	}
	edits := specs.ContainerEdits{Env: append([]string{Variable(a.IfName) + "=" + inside}, Variables(a.IfName, a.Info, socket)...)}
	for _, n := range a.Nodes {
		if err := checkPath(n.Path); err != nil {
			return edits, err
		}
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{
			Path: n.Path, Type: n.Type, Major: n.Major, Minor: n.Minor, Permissions: "rw",
		})
	}
	for _, m := range mounts {
		if err := errors.Join(checkPath(m.Host), checkPath(m.Container)); err != nil {
			return edits, err
		}
		edits.Mounts = append(edits.Mounts, &specs.Mount{HostPath: m.Host, ContainerPath: m.Container, Options: m.Options()})
	}
	return edits, nil
}

// Options are the mount's: it binds one file system object without the mounts below it.
func (m Mount) Options() []string {
	access := "rw"
	if m.ReadOnly {
		access = "ro"
	}
	return []string{"bind", access, "nosuid", "nodev", "noexec"}
}

// checkPath refuses what encoding/json would change into another path.
func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return fmt.Errorf("path %q: must be absolute and UTF-8 without NUL", p)
	}
	return nil
}

// Encode gives the text of the spec's file.
func Encode(spec *specs.Spec) []byte {
	text, _ := json.MarshalIndent(spec, "", "  ") // strings and numbers always encode
	return append(text, '\n')
}

// IsDevinfoSpec reports whether text is a spec that this package made for the file of that name:
// other programs keep theirs in the same directory.
func IsDevinfoSpec(text []byte, file string) bool {
	var spec specs.Spec
	if json.Unmarshal(text, &spec) != nil || len(spec.Devices) != 1 || FileName(spec.Kind, spec.Devices[0].Name) != file {
		return false
	}
	env := spec.Devices[0].ContainerEdits.Env
	return len(env) > 0 && strings.HasPrefix(env[0], variable)
}
