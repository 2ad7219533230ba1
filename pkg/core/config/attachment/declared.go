package attachment

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/config"
)

// podArgs maps placeholders to keys of CNI_ARGS, which may be missing.
var podArgs = map[string]string{
	"podNamespace": "K8S_POD_NAMESPACE", "podName": "K8S_POD_NAME", "podUID": "K8S_POD_UID",
}

// Declared returns the deviceInfo object of the configuration, which may be partial, with its placeholders filled in.
// It returns nil for none, and a *[config.Problem] or warnings if the object violates the specification.
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
	return info, violations.Warnings(), nil
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
	if err := a.fill("cdi.socketDir", cfg.CDI.SocketDir, &c.SocketDir); err != nil {
		return nil, err
	}
	if cfg.CDI.Name == "" {
		return c, nil
	}
	if err := a.fill("cdi.name", cfg.CDI.Name, &c.Name); err != nil {
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

func (a *Attachment) fill(key, text string, into *string) error {
	quoted, _ := json.Marshal(text) // a string always encodes
	filled, err := a.expand(key, quoted)
	if err != nil {
		return err
	}
	return json.Unmarshal(filled, into)
}

// expand fills in the placeholders of a JSON text, which is the value of key. It searches the raw text.
// Outside a string a placeholder would be invalid JSON, so it only finds placeholders in strings.
func (a *Attachment) expand(key string, text json.RawMessage) (json.RawMessage, error) {
	var out json.RawMessage
	for rest := text; ; {
		start := bytes.IndexByte(rest, '{')
		if start < 0 {
			return append(out, rest...), nil
		}
		out, rest = append(out, rest[:start]...), rest[start:]
		name, ok := placeholder(rest)
		if !ok {
			out, rest = append(out, '{'), rest[1:]
			continue
		}
		value, err := a.value(key, name)
		if err != nil {
			return nil, err
		}
		quoted, _ := json.Marshal(value) // a string always encodes
		out, rest = append(out, quoted[1:len(quoted)-1]...), rest[len(name)+len("{}"):]
	}
}

// placeholder returns the name of the placeholder at the beginning of text, such as containerID:12.
func placeholder(text []byte) (name string, ok bool) {
	span := func(from int, in func(c byte) bool) int {
		for from < len(text) && in(text[from]) {
			from++
		}
		return from
	}
	end := span(1, func(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' })
	ok = end > 1
	if end < len(text) && text[end] == ':' {
		digits := span(end+1, func(c byte) bool { return c >= '0' && c <= '9' })
		end, ok = digits, ok && digits > end+1
	}
	return string(text[1:end]), ok && end < len(text) && text[end] == '}'
}

func (a *Attachment) value(key, name string) (string, error) {
	values := map[string]string{
		"containerID": a.ContainerID, "containerID:12": a.ContainerID[:min(12, len(a.ContainerID))], "ifName": a.IfName, "network": a.Network,
	}
	for placeholder, arg := range podArgs {
		values[placeholder] = a.Args.Get(arg)
	}
	value, ok := values[name]
	switch {
	case !ok:
		known := slices.Sorted(maps.Keys(values))
		return "", &config.Problem{
			Key: key, Value: "{" + name + "}",
			Want: fmt.Sprintf("one of the placeholders {%s}; the nearest is {%s}", strings.Join(known, "}, {"), config.Nearest(name, known)),
		}
	case value == "":
		return "", &config.Problem{Key: key, Value: "{" + name + "}", Want: "a placeholder with a value: CNI_ARGS has no " + podArgs[name]}
	}
	return value, nil
}
