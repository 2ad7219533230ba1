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
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"tags.cncf.io/container-device-interface/pkg/parser"
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

// DeviceNode is a device node. Its path is the same in the container and on the host.
type DeviceNode struct {
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
	Request    *Request      // the request of a claim that gives the device without an interface; nil = IfName is the interface
	InfoFile   string        // host path of the device-info file; "" = none
	Info       *devinfo.Info // content of that file; nil = unknown
	Nodes      []DeviceNode
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

// edits returns the container edits. They always set the variable of the interface or request, because CDI rejects a
// device without edits. The variable of an interface may be empty.
func (d Device) edits() (specs.ContainerEdits, error) {
	mounts, prefix, value := d.Mounts, Variable(d.IfName), ""
	if d.InfoFile != "" {
		value = InfoFile(d.IfName)
		mounts = append([]Mount{{Host: d.InfoFile, Container: value, ReadOnly: true}}, mounts...)
	}
	if d.Request != nil {
		prefix, value = d.Request.variable(), d.Request.Device
	}
	socket := func(declared string) string {
		if len(d.Mounts) == 0 {
			return ""
		}
		return declared
	}
	edits := specs.ContainerEdits{Env: append([]string{prefix + "=" + value}, Variables(prefix, d.Info, socket)...)}
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

// FileName returns the CDI library's name for the file of a spec that lives as long as a container,
// <vendor>-<class>_<name>.json. It may be too long for a file.
func FileName(kind, name string) string {
	return strings.ReplaceAll(kind, "/", "-") + "_" + name + ".json"
}

// Qualified returns the name that a container uses to request the device.
func Qualified(kind, name string) string { return kind + "=" + name }

// DeviceName returns the device name of an attachment, <containerID>:<ifName>. In the interface name it replaces a byte
// that CDI does not allow by a colon and two hexadecimal digits. A container ID contains no colon, so the names of two
// attachments always differ.
func DeviceName(containerID, ifName string) string {
	name := []byte(containerID + ":")
	for n, c := range []byte(ifName) {
		last := n == len(ifName)-1
		if parser.IsAlphaNumeric(rune(c)) || !last && strings.IndexByte("_-.", c) >= 0 {
			name = append(name, c)
		} else {
			name = fmt.Appendf(name, ":%02x", c)
		}
	}
	return string(name)
}

// CheckKind returns an error unless the kind keeps the rules of CDI (SPEC.md, "Kind"). The library of container runtimes
// checks the characters only; the vendor must be a DNS subdomain.
func CheckKind(kind string) error {
	const longestVendor, longestClass, longestLabel = 253, 63, 63
	vendor, class, _ := strings.Cut(kind, "/")
	valid := parser.ValidateVendorName(vendor) == nil && parser.ValidateClassName(class) == nil &&
		len(vendor) <= longestVendor && len(class) <= longestClass && !strings.Contains(vendor, "_")
	for label := range strings.SplitSeq(vendor, ".") {
		valid = valid && label != "" && len(label) <= longestLabel && strings.Trim(label, "-") == label
	}
	if !valid {
		return fmt.Errorf("CDI kind %q: must be vendor/class, such as %s: the vendor a DNS subdomain that begins with a letter, of at most %d bytes; "+
			"the class letters, digits, '_', '-' and '.', beginning with a letter and ending with a letter or digit, at most %d bytes", kind, DefaultKind, longestVendor, longestClass)
	}
	return nil
}

// CheckName returns an error unless CDI allows the name for a device.
func CheckName(name string) error {
	if parser.ValidateDeviceName(name) != nil {
		return fmt.Errorf("CDI device name %q: must be letters, digits, '_', '-', '.' and ':', "+
			"beginning and ending with a letter or digit", name)
	}
	return nil
}

const variable = "DEVINFO_"

// Variable returns the name of the environment variable with the path of an interface's device-info file:
// DEVINFO_ and the interface in capitals. It replaces every byte except lower-case letters and digits by _ and
// two hexadecimal digits, so that "net-1", "net_1" and "NET1" have different variables: DEVINFO_NET_2D1,
// DEVINFO_NET_5F1, DEVINFO__4E_45_541.
func Variable(ifName string) string { return variable + spelt(ifName) }

// Request names a device that a claim gives without an interface.
type Request struct {
	Claim  string // name of the claim among those of the pod
	Name   string // name of the request in the claim
	Number int    // 0 for the request's first device
	Device string // name of the device in the ResourceSlice
}

// variable returns the name of the variable with the name of the device, such as DEVINFO_NICS_REQUEST_VF. The second
// device of the request has DEVINFO_NICS_REQUEST_VF_2. As interfaces have no variables with _REQUEST_, and as - and .
// in names become _2D and _2E, two devices or interfaces never have the same one.
func (r *Request) variable() string {
	name := variable + spelt(r.Claim) + "_REQUEST_" + spelt(r.Name)
	if r.Number > 0 {
		name += "_" + strconv.Itoa(r.Number+1)
	}
	return name
}

// spelt returns a name as variables contain it.
func spelt(s string) string {
	var name []byte
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z':
			name = append(name, c-'a'+'A')
		case c >= '0' && c <= '9':
			name = append(name, c)
		default:
			name = fmt.Appendf(name, "_%02X", c)
		}
	}
	return string(name)
}

// Variables returns environment variables with the device information of an interface, such as
// DEVINFO_NET1_TYPE=pci with the prefix DEVINFO_NET1 (see [Variable]). It leaves out empty and invalid values. Suffixes do not
// begin with a hexadecimal digit, so the variables of two interfaces never have the same name. inside returns the container
// path of a declared socket, or "" if the container does not have the socket.
func Variables(prefix string, info *devinfo.Info, inside func(socket string) string) (list []string) {
	var pci, rdma, vdpa, socket, role, mode string
	switch d := info.Device().(type) {
	case nil:
		return nil
	case *devinfo.PCI:
		pci, rdma = d.Address, d.RDMADevice
	case *devinfo.VDPA:
		pci, vdpa = d.Address, d.Path
	case *devinfo.VhostUser:
		socket, mode = d.Path, d.Mode
	case *devinfo.Memif:
		socket, role, mode = d.Path, d.Role, d.Mode
	}
	if socket != "" {
		socket = inside(socket)
	}
	names := strings.Fields("TYPE PCI_ADDRESS RDMA_DEVICE VDPA_PATH SOCKET ROLE MODE")
	for n, value := range []string{string(info.Type), pci, rdma, vdpa, socket, role, mode} {
		if isValue(value) {
			list = append(list, prefix+"_"+names[n]+"="+value)
		}
	}
	return list
}

func isValue(s string) bool {
	const longest = 4096 // the limit for a path; a process cannot start with a variable of 128 KiB
	return s != "" && len(s) <= longest && strings.IndexByte(s, 0) < 0
}

// RDMAVariable is the name of the variable that [RDMADevices] returns.
const RDMAVariable = variable + "RDMA_DEVICES"

// RDMADevices returns the variable DEVINFO_RDMA_DEVICES, which lists each RDMA device of several interfaces
// once as device:port, or "" if there are none. NCCL_IB_HCA and UCX_NET_DEVICES take that format. The port is
// always 1, because only devices of the driver mlx4 have a second port.
func RDMADevices(infos []*devinfo.Info) string {
	var list []string
	for _, info := range infos {
		d, ok := info.Device().(*devinfo.PCI)
		if !ok || d.RDMADevice == "" {
			continue
		}
		for name := range strings.SplitSeq(d.RDMADevice, ",") {
			if port := name + ":1"; !slices.Contains(list, port) {
				list = append(list, port)
			}
		}
	}
	if value := strings.Join(list, ","); isValue(value) {
		return RDMAVariable + "=" + value
	}
	return ""
}
