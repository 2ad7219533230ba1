// Package cdispec builds the CDI (Container Device Interface) spec of a network attachment. Its one device gives a
// container the attachment's device nodes, socket directory, device-info file and environment variables.
//
// The package does no I/O. Package grant decides which device nodes and directories a container may have.
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

// DefaultKind is the kind of the CDI device if the configuration has none.
const DefaultKind = "devinfo-cni.io/attachment"

// VhostNet is the only valid value of vhost-net in the device information of a PCI function.
const VhostNet = "/dev/vhost-net"

// InfoDir is the directory of device-info files in containers.
const InfoDir = "/var/run/k8s.cni.cncf.io/devinfo"

// InfoFile returns the path in containers of an interface's device-info file.
func InfoFile(ifName string) string { return path.Join(InfoDir, ifName+".json") }

// Node is a device node. Its path is the same in the container and on the host.
type Node struct {
	Path         string
	Type         string // "c" or "b"
	Major, Minor int64

	Perm     fs.FileMode // permission bits on the host; the spec does not contain them
	UID, GID uint32      // owner on the host
}

// Mount is a host file or directory for the container.
type Mount struct {
	Host, Container string
	ReadOnly        bool
}

// Device is the CDI device of one attachment.
type Device struct {
	Kind, Name string        // CDI kind (vendor/class) and name of the device
	IfName     string        // CNI_IFNAME
	InfoFile   string        // host path of the device-info file; "" = none
	Info       *devinfo.Info // content of that file; nil = unknown
	Nodes      []Node
	Mounts     []Mount // the socket directory
}

// Spec returns the spec, in the oldest CDI version that has all its fields. It returns an error if CDI does
// not allow the kind or the name, or if JSON cannot represent a path.
func (d Device) Spec() (*specs.Spec, error) {
	if err := errors.Join(CheckKind(d.Kind), CheckName(d.Name)); err != nil {
		return nil, err
	}
	edits, err := d.edits()
	if err != nil {
		return nil, err
	}
	spec := &specs.Spec{Kind: d.Kind, Devices: []specs.Device{{Name: d.Name, ContainerEdits: edits}}}
	spec.Version, err = specs.MinimumRequiredVersion(spec)
	return spec, err
}

// edits returns the container edits. They always set the variable of the interface, which may be empty,
// because CDI rejects a device without edits.
func (d Device) edits() (specs.ContainerEdits, error) {
	mounts, inside := d.Mounts, ""
	if d.InfoFile != "" {
		inside = InfoFile(d.IfName)
		mounts = append([]Mount{{Host: d.InfoFile, Container: inside, ReadOnly: true}}, mounts...)
	}
	socket := func(declared string) string {
		if len(d.Mounts) == 0 {
			return ""
		}
		return declared
	}
	edits := specs.ContainerEdits{Env: append([]string{Variable(d.IfName) + "=" + inside}, Variables(d.IfName, d.Info, socket)...)}
	for _, n := range d.Nodes {
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

// Options returns the options of a bind mount. It is not recursive, so mounts below the directory are left out.
func (m Mount) Options() []string {
	access := "rw"
	if m.ReadOnly {
		access = "ro"
	}
	return []string{"bind", access, "nosuid", "nodev", "noexec"}
}

// checkPath rejects paths that encoding/json would alter.
func checkPath(p string) error {
	if !strings.HasPrefix(p, "/") || !utf8.ValidString(p) || strings.ContainsRune(p, 0) {
		return fmt.Errorf("path %q: must be absolute and UTF-8 without NUL", p)
	}
	return nil
}

// Encode returns the content of the spec's file.
func Encode(spec *specs.Spec) []byte {
	text, _ := json.MarshalIndent(spec, "", "  ") // strings and numbers always encode
	return append(text, '\n')
}

// IsDevinfoSpec reports whether this package built the spec in a file of that name, and not another program.
func IsDevinfoSpec(text []byte, file string) bool {
	var spec specs.Spec
	if json.Unmarshal(text, &spec) != nil || len(spec.Devices) != 1 || FileName(spec.Kind, spec.Devices[0].Name) != file {
		return false
	}
	env := spec.Devices[0].ContainerEdits.Env
	return len(env) > 0 && strings.HasPrefix(env[0], variable)
}
