// Package attachment says what one call is about: the network, the container,
// the interface, and what the configuration declares for them once its
// placeholders are filled in. Configuration and CNI arguments in, values out;
// nothing is read from the system.
package attachment

import (
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/pod"
)

// Args are the CNI parameters of one call (SPEC.md section 2, "Parameters").
type Args struct {
	ContainerID string
	Netns       string // CNI_NETNS; "" on a DEL whose namespace is gone
	IfName      string
	CNIArgs     string // CNI_ARGS, "K=V;K=V"
}

// Attachment is one container's interface on one network.
type Attachment struct {
	Network, ContainerID, IfName string

	Netns string
	Args  pod.Args // CNI_ARGS
	Path  string   // of the device-info file; "" = the runtime passed none
}

// New joins a configuration and the parameters of a call. deviceInfoDir is the
// directory in which deviceInfoFile "auto" puts its file. When CNI_ARGS cannot be
// read the attachment is complete but for those arguments, and the error says why:
// a DEL goes on with it.
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

// FileName is the name that Multus gives an attachment's device-info file (its
// pkg/types/conf.go), so that one node's files are named alike whoever runs the plugin.
func FileName(network, containerID, ifName string) string {
	return strings.ReplaceAll(network+"-"+containerID+"_"+ifName, "/", "-")
}

// ParseFileName is the inverse of FileName for a caller that knows the container ID. It
// returns the network, with "-" where its name has "/", and the interface; ok is false for
// the file of another container.
func ParseFileName(file, containerID string) (network, ifName string, ok bool) {
	network, ifName, ok = strings.Cut(file, "-"+containerID+"_")
	return network, ifName, ok && containerID != "" && network != "" && ifName != ""
}

// ClaimFileName is the name of that of an attachment by a ResourceClaim. It is not of the
// form of FileName: what is named so is every container's of the pod.
func ClaimFileName(network, containerID, ifName string) string {
	return strings.ReplaceAll(network+"."+containerID+"_"+ifName, "/", "-")
}

// BelongsToOtherContainer reports whether a file has the name that Multus (FileName) or cni-dra-driver
// (ClaimFileName) gives to the file of another container. Networks and IDs may hold hyphens
// and dots, and networks and interfaces underscores: only the end can tell. The IDs of all
// container runtimes have 64 hexadecimal digits; other names of that form are the runtime's choice.
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

func mayBeInterface(name string) bool { return name != "" && len(name) < 16 } // IFNAMSIZ

// Pod identifies the pod that the attachment belongs to.
func (a *Attachment) Pod() pod.Identity {
	return pod.Identity{UID: a.Args.UID(), ContainerID: a.ContainerID}
}

// LeadsToNoDevice says that a configuration leads to no device: no plugin before, no delegate, neither
// a device ID nor a declaration with a type. What is declared is of [Attachment.Declared].
// ADD refuses it, unless the device-info file is there already.
func LeadsToNoDevice(cfg *config.Config, declared *devinfo.Info) bool {
	return cfg.PrevResult == nil && len(cfg.Delegates) == 0 && cfg.DeviceID == "" && (declared == nil || declared.Type == "")
}
