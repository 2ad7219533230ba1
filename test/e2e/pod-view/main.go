// Pod-view prints the network devices that a container sees as one JSON object: interfaces, device metadata of its
// claims, device-info files and their environment variables. Then it waits until it is stopped. The examples and the
// end-to-end tests run it.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/api/metadata/v1beta1"
	"k8s.io/dynamic-resource-allocation/devicemetadata"
)

// View is the output. If a file cannot be used, Problems has its error.
type View struct {
	Interfaces  []Interface                        `json:"interfaces"`            // in the kernel's order
	Claims      map[string]*v1beta1.DeviceMetadata `json:"claims,omitempty"`      // by path below ClaimsDir, without the file's name
	DeviceInfo  map[string]json.RawMessage         `json:"deviceInfo,omitempty"`  // by path
	Environment map[string]string                  `json:"environment,omitempty"` // DEVINFO_*
	SocketDirs  []string                           `json:"socketDirs,omitempty"`  // of vhost-user and memif
	Nodes       []string                           `json:"nodes,omitempty"`       // device nodes that a plain container lacks: "/dev/net/tun 0666 0:0"
	Problems    []string                           `json:"problems,omitempty"`
}

// Interface is a network interface of the pod.
type Interface struct {
	Name      string   `json:"name"`
	MAC       string   `json:"mac,omitempty"`
	Addresses []string `json:"addresses,omitempty"` // CIDR
}

const (
	// ClaimsDir is the directory with the device metadata by claim and request.
	ClaimsDir = "/var/run/kubernetes.io/dra-device-attributes"
	// InfoDir is the directory with the device-info files, <interface>.json.
	InfoDir = "/var/run/k8s.cni.cncf.io/devinfo"
)

func main() {
	view := look()
	out, err := json.MarshalIndent(view, "", "  ")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(string(out))
	if len(os.Args) > 1 && os.Args[1] == "-once" {
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}

func look() *View {
	v := &View{Claims: map[string]*v1beta1.DeviceMetadata{}, DeviceInfo: map[string]json.RawMessage{}, Environment: map[string]string{}}
	v.interfaces()
	v.claims()
	v.deviceInfo()
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "DEVINFO_") {
			v.Environment[name] = value
		}
	}
	for _, pattern := range []string{"/var/run/vhost-user/*", "/var/lib/cni/usrspcni/*"} {
		dirs, _ := filepath.Glob(pattern)
		v.SocketDirs = append(v.SocketDirs, dirs...)
	}
	v.nodes()
	return v
}

func (v *View) problem(err error) { v.Problems = append(v.Problems, err.Error()) }

func (v *View) interfaces() {
	list, err := net.Interfaces()
	if err != nil {
		v.problem(err)
	}
	for _, i := range list {
		seen := Interface{Name: i.Name, MAC: i.HardwareAddr.String()}
		addresses, err := i.Addrs()
		if err != nil {
			v.problem(fmt.Errorf("%s: %w", i.Name, err))
		}
		for _, a := range addresses {
			seen.Addresses = append(seen.Addresses, a.String())
		}
		v.Interfaces = append(v.Interfaces, seen)
	}
}

// claims reads the metadata like a workload that knows the names of its claim and request.
func (v *View) claims() {
	for kind, read := range map[string]func(claim, request string) (*metadata.DeviceMetadata, error){
		"resourceclaims":         devicemetadata.ReadResourceClaimMetadata,
		"resourceclaimtemplates": devicemetadata.ReadResourceClaimTemplateMetadata,
	} {
		dirs, _ := filepath.Glob(filepath.Join(ClaimsDir, kind, "*", "*"))
		for _, dir := range dirs {
			claim, request := filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
			out := new(v1beta1.DeviceMetadata)
			m, err := read(claim, request)
			if err == nil {
				err = v1beta1.Convert_metadata_DeviceMetadata_To_v1beta1_DeviceMetadata(m, out, nil)
			}
			if err != nil {
				v.problem(err)
				continue
			}
			v.Claims[filepath.Join(kind, claim, request)] = out
		}
	}
}

func (v *View) deviceInfo() {
	paths, _ := filepath.Glob(filepath.Join(InfoDir, "*.json"))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		switch {
		case err != nil:
			v.problem(err)
		case !json.Valid(data):
			v.problem(fmt.Errorf("%s: no JSON: %q", path, data))
		default:
			v.DeviceInfo[path] = data
		}
	}
}

func (v *View) nodes() {
	for _, pattern := range []string{"/dev/vfio/*", "/dev/vhost-vdpa-*", "/dev/infiniband/*", "/dev/vhost-net", "/dev/net/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			var node syscall.Stat_t
			if err := syscall.Stat(path, &node); err != nil {
				v.problem(fmt.Errorf("%s: %w", path, err))
				continue
			}
			v.Nodes = append(v.Nodes, fmt.Sprintf("%s %04o %d:%d", path, node.Mode&0o7777, node.Uid, node.Gid))
		}
	}
}
