// Package attachment joins a network configuration and the parameters of one CNI call, and fills in the placeholders of
// the configuration. It reads nothing from the system.
package attachment

import (
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/pod"
)

// Args are the CNI parameters of one call (SPEC.md section 2, "Parameters").
type Args struct {
	ContainerID string
	Netns       string // CNI_NETNS; may be "" on DEL
	IfName      string
	CNIArgs     string // CNI_ARGS, "K=V;K=V"
}

// Attachment is one container's interface on one network.
type Attachment struct {
	Network, ContainerID, IfName string

	Netns string
	Args  pod.Args // CNI_ARGS
	Path  string   // path of the device-info file; "" = none
}

// New joins a configuration and the parameters of a call. deviceInfoDir is the directory of the file if
// deviceInfoFile is "auto". If CNI_ARGS has malformed pairs, New returns an error and an attachment with the
// other pairs. DEL continues with that attachment.
func New(cfg *config.Config, args Args, deviceInfoDir string) (*Attachment, error) {
	pairs, err := pod.ParseArgs(args.CNIArgs)
	a := &Attachment{
		Network: cfg.Name, ContainerID: args.ContainerID, IfName: args.IfName,
		Netns: args.Netns, Args: pairs, Path: cfg.InfoFile,
	}
	if a.Path == "" && cfg.AutoFile {
		a.Path = filepath.Join(deviceInfoDir, FileName(a.Network, a.ContainerID, a.IfName))
	}
	return a, err
}

// FileName returns the name of an attachment's device-info file. It is the name that Multus uses
// (pkg/types/conf.go), so a node's files have the same names with and without Multus.
func FileName(network, containerID, ifName string) string {
	return strings.ReplaceAll(network+"-"+containerID+"_"+ifName, "/", "-")
}

// ParseFileName parses a name from FileName for a known container ID. It returns the network, with "-" in
// place of "/", and the interface. ok is false if the name belongs to the file of another container.
func ParseFileName(file, containerID string) (network, ifName string, ok bool) {
	network, ifName, ok = strings.Cut(file, "-"+containerID+"_")
	return network, ifName, ok && containerID != "" && network != "" && ifName != ""
}

// ClaimFileName returns the name of the device-info file of an attachment through a ResourceClaim. It differs
// from FileName because every container of the pod gets the files that FileName names.
func ClaimFileName(network, containerID, ifName string) string {
	return strings.ReplaceAll(network+"."+containerID+"_"+ifName, "/", "-")
}

// BelongsToOtherContainer reports whether a file has the name that FileName or ClaimFileName returns for
// another container. Networks, IDs and interfaces may contain the separators, so it searches from the end of
// the name. It knows container IDs by their 64 hexadecimal digits, which all container runtimes use.
func BelongsToOtherContainer(file, containerID string) bool {
	for _, mark := range []string{"-" + containerID + "_", "." + containerID + "_"} {
		if n := strings.LastIndex(file, mark); n >= 0 && mayBeInterface(file[n+len(mark):]) {
			return false
		}
	}
	const digits = 64
	for end := digits + 1; end < len(file)-1; end++ {
		mark, id := file[end-digits-1], file[end-digits:end]
		if file[end] == '_' && (mark == '-' || mark == '.') && strings.Trim(id, "0123456789abcdef") == "" && mayBeInterface(file[end+1:]) {
			return true
		}
	}
	return false
}

func mayBeInterface(name string) bool { return name != "" && len(name) < 16 } // the kernel allows 15 bytes (IFNAMSIZ)

func (a *Attachment) Pod() pod.Identity {
	return pod.Identity{UID: a.Args.UID(), ContainerID: a.ContainerID}
}

// LeadsToNoDevice reports whether a configuration cannot lead to a device. declared comes from [Attachment.Declared].
// ADD rejects such a configuration, unless the device-info file already exists.
func LeadsToNoDevice(cfg *config.Config, declared *devinfo.Info) bool {
	return cfg.PrevResult == nil && len(cfg.Delegates) == 0 && cfg.DeviceID == "" && (declared == nil || declared.Type == "")
}
