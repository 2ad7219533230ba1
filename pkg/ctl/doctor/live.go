package doctor

import (
	"encoding/json"
	"slices"

	"devinfo-cni.io/pkg/build"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/link"
	"devinfo-cni.io/pkg/podresources"
)

// Live are the facts that only the node itself can tell.
type Live struct {
	VFs        []link.VFRecord      `json:"vfs,omitempty"`     // of which the PFs report the settings
	Devices    []podresources.Given `json:"devices,omitempty"` // that device plugins have given to pods
	Locks      []journal.SRIOVLock  `json:"locks,omitempty"`   // sriov-cni's
	Plugins    map[string]Plugin    `json:"plugins,omitempty"` // CNI's, by type: those that are configured, and ours
	PluginDirs []string             `json:"pluginDirs,omitempty"`
	Networks   []Config             `json:"networks,omitempty"`  // configurations in which devinfo is
	Modules    map[string]bool      `json:"modules,omitempty"`   // of the kernel, of those that matter: whether it is there
	NRI        bool                 `json:"nri,omitempty"`       // the socket is there
	Agent      bool                 `json:"agent,omitempty"`     // devinfo-agent has run since the node booted
	ReadOnly   []string             `json:"readOnly,omitempty"`  // directories of the plugin that are, or would be made, on a read-only file system
	NFS        bool                 `json:"nfs,omitempty"`       // stateDir is, or would be made, on NFS
	Missing    map[string]string    `json:"missing,omitempty"`   // directories, and why they cannot be used
	Unmounted  string               `json:"unmounted,omitempty"` // directory of the network configurations, which the agent's pod does not mount; "" = it is seen
	Driver     bool                 `json:"driver,omitempty"`    // cni-dra-driver has been on the node, and the agent's pod does not see its records
	Refused    string               `json:"refused,omitempty"`   // why devinfo-agent does not put the node settings in place
	Altered    []string             `json:"altered,omitempty"`   // files, by path, that are not as devinfo-agent put them in place
	Notes      []Note               `json:"notes,omitempty"`
}

// Plugin is a CNI plugin's executable.
type Plugin struct {
	Path        string     `json:"path"`
	CNIVersions []string   `json:"cniVersions,omitempty"`
	Problem     string     `json:"problem,omitempty"` // why its versions are unknown
	Build       build.Info `json:"build,omitzero"`    // of Go programs; the devinfo plugin tells it itself
}

// Config is a file of the CNI configuration directory. Of plugins other than devinfo, its delegates too, only
// what the checks look at is kept, since the rest may be secret.
type Config struct {
	Path string          `json:"path"`
	Text json.RawMessage `json:"text"`
}

// Note says what could not be looked at.
type Note struct {
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

func (l *Live) note(remedy, text string) { l.Notes = append(l.Notes, Note{text, remedy}) }

// reduced is a configuration without what may be secret; ok is false if it does not contain
// devinfo, or is invalid JSON.
func reduced(text []byte) (_ json.RawMessage, types []string, ok bool) {
	var list map[string]json.RawMessage
	if json.Unmarshal(text, &list) != nil {
		return nil, nil, false
	}
	var plugins []map[string]json.RawMessage
	if list["plugins"] == nil {
		plugins = []map[string]json.RawMessage{list}
	} else if json.Unmarshal(list["plugins"], &plugins) != nil {
		return nil, nil, false
	}
	for n, p := range plugins {
		var kind string
		_ = json.Unmarshal(p["type"], &kind) // "" is of no plugin
		types = append(types, kind)
		if kind == validate.Plugin {
			ok = true
			if p["delegates"] != nil {
				p["delegates"] = bareDelegates(p["delegates"])
			}
			if hideUnknown(p) {
				continue
			}
		}
		plugins[n] = bare(p)
	}
	if list["plugins"] != nil {
		for key := range list {
			if !slices.Contains(validate.ListKeys, key) {
				list[key] = null
			}
		}
		list["plugins"], _ = json.Marshal(plugins) // of what was just read
	}
	whole, err := json.Marshal(list)
	return whole, types, ok && err == nil
}

var null = json.RawMessage("null")

// hideUnknown empties the keys of our own configuration that are not known: one may be a misspelt
// "delegates". It returns false if package config does not name all of them.
func hideUnknown(p map[string]json.RawMessage) bool {
	whole, _ := json.Marshal(p) // of what was just read
	c, err := config.Parse(whole)
	if err != nil || c.MoreUnknown > 0 {
		return false
	}
	for _, unknown := range c.Unknown {
		if p[unknown.Key] != nil {
			p[unknown.Key] = null
		}
	}
	return true
}

// bare is what is kept of another plugin's configuration.
func bare(p map[string]json.RawMessage) map[string]json.RawMessage {
	kept := map[string]json.RawMessage{}
	for _, key := range []string{"type", "capabilities"} {
		if p[key] != nil {
			kept[key] = p[key]
		}
	}
	return kept
}

// bareDelegates keeps as much of each delegate. What is no list of configurations is left
// out, and is as wrong without its content.
func bareDelegates(raw json.RawMessage) json.RawMessage {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return json.RawMessage(`"left out"`)
	}
	for n, d := range list {
		list[n] = bare(d)
	}
	kept, _ := json.Marshal(list) // of what was just read
	return kept
}
