package attachment

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
)

var placeholders = []string{"containerID", "containerID:12", "ifName", "network", "podName", "podNamespace", "podUID"}

// podArgs maps placeholders to keys of CNI_ARGS, which may be missing.
var podArgs = map[string]string{
	"podNamespace": "K8S_POD_NAMESPACE", "podName": "K8S_POD_NAME", "podUID": "K8S_POD_UID",
}

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

// CDI is like [Attachment.Declared], for the "cdi" object of the configuration. It also fills in the defaults.
func (a *Attachment) CDI(cfg *config.Config) (*config.CDI, error) {
	if cfg.CDI == nil {
		return nil, nil
	}
	c := &config.CDI{Kind: cmp.Or(cfg.CDI.Kind, cdispec.DefaultKind), Name: cdispec.DeviceName(a.ContainerID, a.IfName)}
	if err := cdispec.CheckKind(c.Kind); err != nil {
		return nil, problem("cdi.kind", c.Kind, want(err.Error()))
	}
	var err error
	if c.SocketDir, err = a.fill("cdi.socketDir", cfg.CDI.SocketDir); err != nil {
		return nil, err
	}
	if cfg.CDI.Name == "" {
		return c, nil
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
	return c, nil
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
		start := bytes.IndexByte(text, '"')
		if start < 0 {
			return append(out, text...), nil
		}
		end := start + 1
		for ; text[end] != '"'; end++ {
			if text[end] == '\\' {
				end++
			}
		}
		end++
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
	if arg := podArgs[name]; arg != "" {
		values[name] = a.Args.Get(arg)
	}
	if values[name] == "" {
		return "", &config.Problem{Key: key, Value: "{" + name + "}", Want: "a placeholder with a value: CNI_ARGS has no " + podArgs[name]}
	}
	return values[name], nil
}
