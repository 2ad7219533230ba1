package validate

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"

	"devinfo-cni.io/pkg/core/config"
)

// listWants describes the values of a list's keys that libcni accepts.
var listWants = map[string]string{
	"cniVersions": `a list of CNI versions, ["1.0.0", "1.1.0"]`, "disableCheck": "true or false", "disableGC": "true or false", "loadOnlyInlinedPlugins": "true or false",
}

// list parses a list that has these keys, a name and one plugin, as container runtimes do.
func list(keys map[string]json.RawMessage) (*libcni.NetworkConfigList, error) {
	whole := map[string]any{"name": "n", "plugins": []types.PluginConf{{Type: "n"}}}
	for key, value := range keys {
		if value != nil {
			whole[key] = value
		}
	}
	return libcni.NetworkConfFromBytes(config.Encode(whole))
}

// decoded returns a plugin's configuration as libcni reads it, which ignores letter case, without the keys that it refuses.
func decoded(plugin map[string]json.RawMessage) (conf types.PluginConf) {
	_ = json.Unmarshal(config.Encode(plugin), &conf) // decodable reports the errors
	return conf
}

// versions sets the version that the runtime passes to the plugins, and reports whether it can read it: the highest one that
// libcni knows of cniVersions and cniVersion, or the cniVersion of a single plugin. It adds findings for list keys that libcni
// refuses.
func (n *network) versions(isList bool) (readable bool) {
	own := n.object["cniVersion"]
	if !isList {
		n.version = decoded(n.object).CNIVersion
		return own == nil || json.Unmarshal(own, new(string)) == nil
	}
	for _, key := range ListKeys {
		if _, err := list(map[string]json.RawMessage{key: n.object[key]}); listWants[key] != "" && err != nil && !n.dra {
			n.wrong(n.path+"."+key, n.object[key], "must be %s: container runtimes refuse the network", listWants[key])
		}
	}
	parsed, err := list(map[string]json.RawMessage{"cniVersion": own, "cniVersions": n.object["cniVersions"]})
	if err != nil {
		parsed, err = list(map[string]json.RawMessage{"cniVersion": own}) // otherwise the finding above explains it
	}
	if err == nil {
		n.version = parsed.CNIVersion
	}
	return err == nil
}

// decodable reports the keys of a plugin that libcni refuses, unless a finding has the same path.
func (n *network) decodable(path string, object map[string]json.RawMessage) {
	report := func(key string, value json.RawMessage, want string) {
		if at := strings.TrimPrefix(path+"."+key, "."); !n.dra && !slices.ContainsFunc(n.Findings, func(f Finding) bool { return f.Path == at && !f.Warning }) {
			n.wrong(at, value, "must be %s: container runtimes refuse the network", want)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		one := map[string]json.RawMessage{key: object[key]}
		if wrong, is := errors.AsType[*json.UnmarshalTypeError](json.Unmarshal(config.Encode(one), new(types.PluginConf))); is {
			report(wrong.Field, object[key], config.TypeInWords(wrong.Type))
		}
	}
	if kind := decoded(object).Type; kind == "" || strings.Contains(kind, "/") {
		report("type", object["type"], "the name of a CNI plugin")
	}
}

// parsable reports that libcni refuses a list without a finding that explains it.
func (n *network) parsable(isList bool) {
	if n.dra || !isList || n.Errors() > 0 {
		return
	}
	whole := maps.Clone(n.object)
	whole["name"] = n.name
	if _, err := list(whole); err != nil {
		n.wrong(n.path, nil, "container runtimes refuse the network: %v", err)
	}
}
