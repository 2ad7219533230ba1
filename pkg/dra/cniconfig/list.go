package cniconfig

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"
)

// maxName is for the name of a network, in bytes: with a sandbox ID and an interface
// name it is part of file names, which have at most 255.
const maxName = 128

// list makes a configuration list of a CNI configuration, and gives the network with
// Name, CNIVersion and List, or all that is wrong.
func list(config json.RawMessage) (Network, []*Refusal) {
	raw, refusal := listed(config)
	if refusal != nil {
		return Network{}, []*Refusal{refusal}
	}
	parsed, err := libcni.ConfListFromBytes(raw)
	if err != nil {
		return Network{}, []*Refusal{refuse("config", fmt.Sprintf("config: %v", err), "write it as CNI SPEC.md section 1 has it; in YAML, quote versions")}
	}
	if wrong := check(parsed); wrong != nil {
		return Network{}, wrong
	}
	return Network{Name: parsed.Name, CNIVersion: parsed.CNIVersion, List: raw}, nil
}

// listed gives the text of a list as it is, without white space; a single plugin
// becomes the one entry of a list.
func listed(config json.RawMessage) (json.RawMessage, *Refusal) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(config, &fields); err != nil {
		return nil, refuse("config", fmt.Sprintf("config: %v", err), "give an object")
	}
	_, single := fields["type"]
	_, many := fields["plugins"]
	switch {
	case single && many:
		return nil, refuse("config", `config has both "type" and "plugins"`, "give a plugin, or a list of plugins")
	case many:
		var out bytes.Buffer
		if err := json.Compact(&out, config); err != nil {
			return nil, refuse("config", fmt.Sprintf("config: %v", err), "give an object")
		}
		return out.Bytes(), nil
	case !single:
		return nil, refuse("config", `config has neither "type" nor "plugins"`, "give a plugin, or a list of plugins")
	}
	wrapped := map[string]any{"plugins": []json.RawMessage{config}}
	for _, key := range []string{"cniVersion", "name"} {
		if v, ok := fields[key]; ok {
			wrapped[key] = v
		}
	}
	raw, err := json.Marshal(wrapped)
	if err != nil {
		return nil, refuse("config", fmt.Sprintf("config: %v", err), "give an object")
	}
	return raw, nil
}

// check refuses what libcni lets pass and ADD or DEL would fail with.
func check(l *libcni.NetworkConfigList) (wrong []*Refusal) {
	if err := utils.ValidateNetworkName(l.Name); err != nil || len(l.Name) > maxName {
		wrong = append(wrong, refuse("config.name", fmt.Sprintf("config.name %s is not a network name", quote(l.Name)),
			fmt.Sprintf(`use letters, digits, "_", "." and "-", at most %d, with a letter or digit first`, maxName)))
	}
	if known := version.All.SupportedVersions(); !slices.Contains(known, l.CNIVersion) {
		wrong = append(wrong, refuse("config.cniVersion", fmt.Sprintf("config.cniVersion %s is not known", quote(l.CNIVersion)), "use one of "+strings.Join(known, ", ")))
	}
	if len(l.Plugins) == 0 {
		wrong = append(wrong, refuse("config.plugins", "config.plugins has no plugin", "give at least one"))
	}
	for n, plugin := range l.Plugins {
		if name := plugin.Network.Type; name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			at := fmt.Sprintf("config.plugins[%d].type", n)
			wrong = append(wrong, refuse(at, fmt.Sprintf("%s %s is not a file name", at, quote(name)), "name a CNI plugin, without a directory"))
		}
	}
	return wrong
}
