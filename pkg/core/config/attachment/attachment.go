// Package attachment joins a network configuration and the parameters of one CNI call, and fills in the placeholders of
// the configuration. It reads nothing from the system.
package attachment

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/pod"
)

// Args are the CNI parameters of one call (SPEC.md section 2, "Parameters").
type Args struct {
	ContainerID string
	Netns       string // CNI_NETNS; may be "" on DEL
	IfName      string
	CNIArgs     string // CNI_ARGS, "K=V;K=V"
	AnyNetns    bool   // CNI_NETNS_OVERRIDE: CNI_NETNS may be this process's own
}

// Attachment is one container's interface on one network.
type Attachment struct {
	Args
	Network string
	Pairs   pod.Args // of CNIArgs
	Path    string   // path of the device-info file; "" = none
}

// New joins a configuration and the parameters of a call. deviceInfoDir is the directory of the file if
// deviceInfoFile is "auto". If CNI_ARGS has malformed pairs, New returns an error and an attachment with the
// other pairs. DEL continues with that attachment.
func New(cfg *config.Config, args Args, deviceInfoDir string) (*Attachment, error) {
	pairs, err := pod.ParseArgs(args.CNIArgs)
	a := &Attachment{Args: args, Network: cfg.Name, Pairs: pairs, Path: cfg.InfoFile}
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
	for end := digits + 1; end < len(file); end++ {
		mark, id := file[end-digits-1], file[end-digits:end]
		if file[end] == '_' && (mark == '-' || mark == '.') && strings.Trim(id, "0123456789abcdef") == "" && mayBeInterface(file[end+1:]) {
			return true
		}
	}
	return false
}

func mayBeInterface(name string) bool { return name != "" && len(name) < 16 } // the kernel allows 15 bytes (IFNAMSIZ)

func (a *Attachment) Pod() pod.Identity {
	return pod.Identity{UID: a.Pairs.UID(), ContainerID: a.ContainerID}
}

// LeadsToNoDevice reports whether a configuration cannot lead to a device. declared comes from [Attachment.Declared].
// ADD rejects such a configuration, unless the device-info file already exists.
func LeadsToNoDevice(cfg *config.Config, declared *devinfo.Info) bool {
	return cfg.PrevResult == nil && len(cfg.Delegates) == 0 && cfg.DeviceID == "" && (declared == nil || declared.Type == "")
}

var placeholders = []string{"containerID", "containerID:12", "ifName", "network", "podName", "podNamespace", "podUID"}

// Declared returns the deviceInfo object of the configuration, which may be partial, with its placeholders filled in.
// It returns nil for none, and a *[config.Problem] or warnings if the object violates the specification. [Vet] checks the
// same keys more strictly.
func (a *Attachment) Declared(cfg *config.Config) (*devinfo.Info, devinfo.Violations, error) {
	if cfg.DeviceInfo == nil {
		return nil, nil, nil
	}
	text, err := a.expand("deviceInfo", cfg.DeviceInfo)
	if err != nil {
		return nil, nil, err
	}
	info, err := devinfo.Parse(text)
	if version, ok := errors.AsType[*devinfo.VersionError](err); ok {
		return nil, nil, problem("deviceInfo.version", version.Version, "version 1.x, or no version")
	} else if err != nil {
		return nil, nil, &config.Problem{Key: "deviceInfo", Value: fmt.Sprintf("an object of %d bytes", len(text)), Want: "a smaller object: " + err.Error()}
	}
	if info.PCI != nil && info.PCI.VhostNet != "" && info.PCI.VhostNet != cdispec.VhostNet {
		return nil, nil, problem("deviceInfo.pci.vhost-net", info.PCI.VhostNet, strconv.Quote(cdispec.VhostNet))
	}
	violations := info.ValidateDeclared()
	if bad := violations.Errors(); len(bad) > 0 {
		v := bad[0]
		return nil, nil, &config.Problem{Key: "deviceInfo" + strings.TrimPrefix(v.Path, "$"), Value: v.Value, Want: want(v.Rule)}
	}
	if err := settleType(info); err != nil {
		return nil, nil, err
	}
	return info, append(violations.Warnings(), tooLong(info)...), nil
}

// CDI is like [Attachment.Declared], for the "cdi" object of the configuration. It also fills in the defaults. For a kind
// that the specification of CDI does not allow, it returns the object with the error, because older builds wrote such a spec.
func (a *Attachment) CDI(cfg *config.Config) (*config.CDI, error) {
	if cfg.CDI == nil {
		return nil, nil
	}
	c := &config.CDI{Kind: cmp.Or(cfg.CDI.Kind, cdispec.DefaultKind), Name: cdispec.DeviceName(a.ContainerID, a.IfName)}
	wrong := cdispec.CheckKind(c.Kind)
	if wrong != nil {
		wrong = problem("cdi.kind", c.Kind, want(wrong.Error()))
	}
	var err error
	if c.SocketDir, err = a.fill("cdi.socketDir", cfg.CDI.SocketDir); err != nil {
		return nil, err
	}
	if cfg.CDI.Name == "" {
		return c, wrong
	}
	if c.Name, err = a.fill("cdi.name", cfg.CDI.Name); err != nil {
		return nil, err
	}
	if err := cdispec.CheckName(c.Name); err != nil {
		return nil, problem("cdi.name", c.Name, want(err.Error()))
	}
	if !a.Pod().Owns(c.Name) {
		return nil, problem("cdi.name", c.Name, `a name with the pod's UID or the first 12 characters of the container ID in it, such as "{podUID}-{ifName}": `+
			"if two devices have the same name, runtimes inject neither")
	}
	return c, wrong
}

func problem(key, value, want string) *config.Problem {
	return &config.Problem{Key: key, Value: strconv.Quote(value), Want: want}
}

// want returns a rule without its verb, for [config.Problem]: `a string` from `must be a string`.
func want(rule string) string {
	for _, verb := range []string{"must be ", "should be ", "should hold "} {
		if _, rest, ok := strings.Cut(rule, verb); ok {
			return rest
		}
	}
	return rule
}

// settleType sets a missing type to the type of the only declared map. It returns an error for a map of another
// type, because that map would be lost.
func settleType(info *devinfo.Info) error {
	maps := info.Maps()
	if info.Type == "" && len(maps) == 1 {
		info.Type = maps[0]
	}
	for _, t := range maps {
		if t != info.Type {
			return problem("deviceInfo.type", string(info.Type), fmt.Sprintf("the type of the only map that is declared, but there is also a map %q", t))
		}
	}
	return nil
}

// expand fills in the placeholders in the strings of a JSON text, which is the value of key. It reads the text of each
// string, in which a brace may be escaped, and leaves a string without placeholders byte for byte.
func (a *Attachment) expand(key string, text json.RawMessage) (out json.RawMessage, err error) {
	for {
		start, end := config.NextString(text)
		if start == end {
			return append(out, text...), nil
		}
		quoted, before, after := text[start:end], "", ""
		if bytes.ContainsAny(quoted, `{\`) {
			_ = json.Unmarshal(quoted, &before) // the text is valid JSON
			if after, err = a.fill(key, before); err != nil {
				return nil, err
			}
		}
		if out, text = append(out, text[:start]...), text[end:]; len(out)+len(after) > 2*mostFilled {
			return nil, tooLarge(key)
		}
		if after != before {
			quoted, _ = json.Marshal(after) // a string always encodes
		}
		out = append(out, quoted...)
	}
}

// placeholder returns the name of the placeholder at the beginning of text, such as containerID:12; "" = none.
func placeholder(text string) (name string) {
	for _, name := range placeholders {
		if rest, ok := strings.CutPrefix(text[1:], name); ok && strings.HasPrefix(rest, "}") {
			return name
		}
	}
	return ""
}

// mostFilled is the number of bytes of a value with its placeholders filled in. The name of a network has no limit.
const mostFilled = 1 << 20

func tooLarge(key string) error {
	return &config.Problem{Key: key, Value: "a value that grows with its placeholders", Want: "at most 1 MiB"}
}

// fill fills in the placeholders of a text, which is in the value of key. All other texts stay, see [Vet].
func (a *Attachment) fill(key, text string) (string, error) {
	var out strings.Builder
	for {
		start := strings.IndexByte(text, '{')
		if start < 0 {
			out.WriteString(text)
			return out.String(), nil
		}
		out.WriteString(text[:start])
		value, end := "{", start+1
		if name := placeholder(text[start:]); name != "" {
			var err error
			if value, err = a.value(key, name); err != nil {
				return "", err
			}
			end += len(name) + len("}")
		}
		if out.Len()+len(value) > mostFilled {
			return "", tooLarge(key)
		}
		out.WriteString(value)
		text = text[end:]
	}
}

func (a *Attachment) value(key, name string) (string, error) {
	values := map[string]string{
		"containerID": a.ContainerID, "containerID:12": a.ContainerID[:min(12, len(a.ContainerID))], "ifName": a.IfName, "network": a.Network,
	}
	arg := map[string]string{"podNamespace": "K8S_POD_NAMESPACE", "podName": "K8S_POD_NAME", "podUID": "K8S_POD_UID"}[name]
	if arg != "" { // a key of CNI_ARGS, which may be missing
		values[name] = a.Pairs.Get(arg)
	}
	if values[name] == "" {
		return "", &config.Problem{Key: key, Value: "{" + name + "}", Want: "a placeholder with a value: CNI_ARGS has no " + arg}
	}
	return values[name], nil
}
