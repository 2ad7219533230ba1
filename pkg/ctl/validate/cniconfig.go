package validate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/result"
)

const (
	definition         = "NetworkAttachmentDefinition"
	resourceAnnotation = "k8s.v1.cni.cncf.io/resourceName" // of a NetworkAttachmentDefinition
)

// network is what a plugin's configuration stands in.
type network struct {
	name     json.RawMessage // of the list, or of the NetworkAttachmentDefinition; nil = none
	version  json.RawMessage // of the list
	multus   bool            // it is a NetworkAttachmentDefinition
	resource bool            // which has a resourceName: Multus passes a deviceID
	after    bool            // other plugins run before this one
	maker    string          // the type of one of those that makes the interface; "" = there is none
	dra      bool            // it is of a DeviceClass or a claim: see CNIConfig
}

// configIn checks a configuration, a list of them, or those of a
// NetworkAttachmentDefinition.
func (c Checker) configIn(s *sheet, data json.RawMessage) {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		s.wrong("$", data, "must be a CNI configuration, an object")
		return
	}
	if text(object["kind"]) != definition {
		c.list(s, "$", object, network{})
		return
	}
	var nad struct {
		Metadata struct {
			Name        string
			Annotations map[string]string
		}
		Spec struct{ Config json.RawMessage }
	}
	if err := json.Unmarshal(data, &nad); err != nil {
		s.wrong("$", nil, "must be a %s, {metadata: {name: NAME}, spec: {config: ...}}: %v", definition, err)
		return
	}
	const path = "$.spec.config"
	if text(nad.Spec.Config) == "" && (nad.Spec.Config == nil || is[string](nad.Spec.Config)) {
		s.warn(path, nad.Spec.Config, "there is no configuration here: the runtime takes it from a file on the node; validate that file")
		return
	}
	inner, ok := s.embedded(path, nad.Spec.Config)
	if !ok {
		return
	}
	if json.Unmarshal(inner, &object) != nil || inner[0] != '{' {
		s.wrong(path, inner, "must be a CNI configuration, an object")
		return
	}
	clear(object)
	_ = json.Unmarshal(inner, &object) // it has just succeeded
	c.list(s, path, object, network{
		name: quote(nad.Metadata.Name), multus: true, resource: nad.Metadata.Annotations[resourceAnnotation] != "",
	})
}

// listKeys are the keys of a list of plugins (CNI SPEC.md, section 1).
var listKeys = []string{"cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "plugins"}

// list checks a list of plugins, or the one that object is.
func (c Checker) list(s *sheet, path string, object map[string]json.RawMessage, in network) {
	raw, isList := object["plugins"]
	var plugins []map[string]json.RawMessage
	if isList {
		s.unknown(path, object, listKeys)
		if json.Unmarshal(raw, &plugins) != nil {
			s.wrong(path+".plugins", raw, "must be a list of plugin configurations")
			return
		}
	} else if text(object["type"]) != Plugin {
		s.without(path+".type", object["type"], in)
		return
	}
	if object["name"] != nil {
		in.name = object["name"]
	}
	in.version = object["cniVersion"]
	s.identity(path, in)
	if !isList {
		c.plugin(s, path, object, in)
		return
	}
	c.supported(s, path+".plugins", plugins, in)
	ours := 0
	for n, p := range plugins {
		if text(p["type"]) == Plugin {
			in.after, in.maker = n > 0, maker(plugins[n+1:])
			here := fmt.Sprintf("%s.plugins[%d]", path, n)
			if ours++; ours > 1 {
				s.warn(here, p["type"], "is in the chain twice: leave one out; ADD of the second undoes what the first has written")
			}
			c.plugin(s, here, p, in)
		}
	}
	if ours == 0 {
		s.without(path+".plugins", raw, in)
	}
}

// without says that a configuration has no plugin of ours. Only there are others checked.
func (s *sheet) without(path string, value json.RawMessage, in network) {
	if !in.dra {
		s.none(path, value, fmt.Sprintf("must name a plugin of type %q", Plugin), fmt.Sprintf("it has no plugin of type %q", Plugin))
	}
}

// supported reports plugins of the node that do not know the version of the list: they
// refuse ADD.
func (c Checker) supported(s *sheet, path string, plugins []map[string]json.RawMessage, in network) {
	if c.Versions == nil || in.version == nil {
		return
	}
	for n, p := range plugins {
		kind, now := text(p["type"]), text(in.version)
		if known := c.Versions(kind); len(known) > 0 && !slices.Contains(known, now) {
			s.wrong(fmt.Sprintf("%s[%d].type", path, n), p["type"], "the %s of this node knows CNI %s only, not %s: set one of those as cniVersion, or update the plugin",
				kind, strings.Join(known, ", "), now)
		}
	}
}

// plugin checks one configuration of ours, as the runtime would hand it over.
func (c Checker) plugin(s *sheet, path string, object map[string]json.RawMessage, in network) {
	for key, value := range map[string]json.RawMessage{"name": in.name, "cniVersion": in.version} {
		if delete(object, key); value != nil {
			object[key] = value
		}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		s.wrong(path, nil, "%v", err)
		return
	}
	cfg, err := config.Parse(raw)
	if err != nil {
		s.wrong(path, raw, "%v", err)
		return
	}
	s.keys(path, object, cfg)
	if _, err := result.Parse(cfg.PrevResult, cfg.CNIVersion); cfg.PrevResult != nil && err != nil {
		s.wrong(path+".prevResult", cfg.PrevResult, "must be a CNI result of a version up to %s: %v", cfg.CNIVersion, err)
	}
	declared, ok := s.placeholders(path, cfg, in)
	s.devices(path, cfg, declared)
	s.capability(path, object, cfg, in)
	s.position(path, object, ok && len(cfg.Problems) == 0 && attachment.Idle(cfg, declared), cfg, in)
	c.delegates(s, path, cfg)
}

// keys reports keys that are not known, and values that are not supported.
func (s *sheet) keys(path string, object map[string]json.RawMessage, cfg *config.Config) {
	for _, p := range slices.Concat(cfg.Problems, cfg.DelegateProblems()) {
		if p.Key == "name" || p.Key == "cniVersion" {
			continue // identity has looked at them
		}
		s.problem(path, p)
	}
	for _, u := range cfg.Unknown {
		here, value := at(path, u.Key), object[u.Key]
		if parent, key, ok := strings.Cut(u.Key, "."); ok && value == nil { // a key of an object: "cdi.knd"
			var inner map[string]json.RawMessage
			_ = json.Unmarshal(object[parent], &inner) // config has read it
			here, value = at(path+"."+parent, key), inner[key]
		}
		s.warn(here, value, "the key is not known; the nearest known one is %q", u.Nearest)
	}
	if cfg.MoreUnknown > 0 {
		s.warn(path, object["type"], "has %d more keys that are not known", cfg.MoreUnknown)
	}
}

// identity checks what the runtime puts into every plugin's configuration.
func (s *sheet) identity(path string, in network) {
	if in.dra {
		return // cniconfig has
	}
	if err := utils.ValidateNetworkName(text(in.name)); err != nil {
		s.wrong(path+".name", in.name, `must be the network's name: letters, digits, "_", "." and "-", a letter or digit first`)
	}
	if in.version == nil {
		s.warn(path+".cniVersion", nil, "is 0.1.0 where it is missing, which has neither chains (0.3.0) nor CHECK (0.4.0)")
	} else if versions := version.All.SupportedVersions(); !slices.Contains(versions, text(in.version)) {
		s.wrong(path+".cniVersion", in.version, "must be one of %s", strings.Join(versions, ", "))
	}
}

// sample stands for an attachment: its placeholders are their own names, in capitals.
var sample = attachment.Args{
	ContainerID: "CONTAINERID", IfName: "IFNAME", CNIArgs: "K8S_POD_NAMESPACE=PODNAMESPACE;K8S_POD_NAME=PODNAME;K8S_POD_UID=PODUID",
}

// placeholders checks what has placeholders, deviceInfo and cdi, and gives what is declared;
// ok is false if that is wrong.
func (s *sheet) placeholders(path string, cfg *config.Config, in network) (declared *devinfo.Info, ok bool) {
	a, err := attachment.New(cfg, sample, "/")
	if err != nil {
		return nil, false // CNI_ARGS are the sample's
	}
	_, err = a.CDI(cfg)
	s.problem(path, err)
	if s.declared(path+".deviceInfo", cfg) {
		return nil, false
	}
	if declared, _, err = a.Declared(cfg); err != nil {
		s.problem(path, err)
		return nil, false
	}
	whole := devinfo.Merge(nil, nil, declared)
	if whole == nil || in.after || in.resource || cfg.PrevResult != nil || len(cfg.Delegates) > 0 {
		return declared, true
	}
	isSocket := whole.Type == devinfo.TypeVhostUser || whole.Type == devinfo.TypeMemif
	if isSocket || whole.Type != "" && cfg.DeviceID == "" && !in.dra && (in.multus || !cfg.Capabilities["deviceID"]) { // nobody else knows the device
		for _, v := range whole.Validate().Errors() {
			s.found = append(s.found, of(path+".deviceInfo", v))
		}
	}
	return declared, true
}

// devices reports a second PCI address, which ADD refuses; beside a socket it ignores them.
func (s *sheet) devices(path string, cfg *config.Config, declared *devinfo.Info) {
	ids := cfg.DeviceIDs
	switch d := declared.Device().(type) {
	case *devinfo.PCI:
		ids = append([]config.NamedID{{Key: "deviceInfo.pci.pci-address", ID: d.Address}}, ids...)
	case *devinfo.VhostUser, *devinfo.Memif:
		return
	}
	var first string
	for _, id := range ids {
		if a, err := pci.Parse(id.ID); err == nil && cmp.Or(first, a.String()) != a.String() {
			s.wrong(path+"."+id.Key, quote(id.ID), "must be %s, the device that another key names: ADD refuses two", first)
		} else if err == nil {
			first = a.String()
		}
	}
}

func (s *sheet) problem(path string, err error) {
	var p *config.Problem
	if errors.As(err, &p) {
		s.found = append(s.found, Finding{Path: path + "." + p.Key, Value: p.Value, Rule: "must be " + p.Want})
	}
}

// declared finds all that is wrong in deviceInfo, where [attachment.Attachment.Declared]
// stops at the first; bad says that there is a problem.
func (s *sheet) declared(path string, cfg *config.Config) (bad bool) {
	if cfg.DeviceInfo == nil {
		return false
	}
	info, err := devinfo.Parse(cfg.DeviceInfo)
	if err != nil {
		return false // Declared says it
	}
	violations := info.ValidateDeclared()
	for _, v := range violations {
		s.found = append(s.found, of(path, v))
	}
	return violations.Err() != nil
}
