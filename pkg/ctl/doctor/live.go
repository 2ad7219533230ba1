package doctor

import (
	"encoding/json"
	"slices"

	"devinfo-cni.io/pkg/core/build"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/podresources"
	"devinfo-cni.io/pkg/ctl/validate"
	"devinfo-cni.io/pkg/host/link"
)

// Live contains the facts that are only available on the node itself.
type Live struct {
	VFs        []link.VFRecord      `json:"vfs,omitempty"`     // VFs whose PFs report the settings
	Spoilt     []link.Spoilt        `json:"spoilt,omitempty"`  // interfaces with settings that stop traffic
	Devices    []podresources.Given `json:"devices,omitempty"` // allocations of device plugins to pods
	Locks      []journal.SRIOVLock  `json:"locks,omitempty"`   // locks of sriov-cni
	Plugins    map[string]Plugin    `json:"plugins,omitempty"` // CNI plugins by type: the configured ones and devinfo
	PluginDirs []string             `json:"pluginDirs,omitempty"`
	Networks   []Config             `json:"networks,omitempty"`   // configurations that contain devinfo
	NRI        bool                 `json:"nri,omitempty"`        // the NRI socket exists
	Agent      bool                 `json:"agent,omitempty"`      // devinfo-agent has run since the node booted
	ReadOnly   []string             `json:"readOnly,omitempty"`   // directories of the plugin on a read-only file system
	NFS        bool                 `json:"nfs,omitempty"`        // stateDir is on NFS
	Missing    map[string]string    `json:"missing,omitempty"`    // directories, and why they cannot be used
	Unmounted  string               `json:"unmounted,omitempty"`  // directory of the network configurations, if the agent's pod does not mount it
	Gate       string               `json:"gate,omitempty"`       // path of cni-dra-gate, if the records of its driver are not visible in the agent's pod
	DriverAway bool                 `json:"driverAway,omitempty"` // see [node.Node.DriverAway]
	Notes      []Note               `json:"notes,omitempty"`
}

// Plugin is a CNI plugin's executable.
type Plugin struct {
	Path        string     `json:"path"`
	CNIVersions []string   `json:"cniVersions,omitempty"`
	Problem     string     `json:"problem,omitempty"` // why its versions are unknown
	Build       build.Info `json:"build,omitzero"`    // build information of Go programs; devinfo prints its own
}

// Config is a file of the CNI configuration directory. It contains the configuration of devinfo, and of other
// plugins and of delegates only the keys that the checks read, because other keys may be secret.
type Config struct {
	Path string          `json:"path"`
	Text json.RawMessage `json:"text"`
}

// Note describes facts that could not be read.
type Note struct {
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"`
}

func (l *Live) note(remedy, text string) { l.Notes = append(l.Notes, Note{text, remedy}) }

// reduced returns a configuration without keys that may be secret. ok is false if it does not contain devinfo
// or is invalid JSON.
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
		_ = json.Unmarshal(p["type"], &kind) // kind stays "" on an error, and no plugin has this type
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
		list["plugins"], _ = json.Marshal(plugins) // decoded from JSON above
	}
	whole, err := json.Marshal(list)
	return whole, types, ok && err == nil
}

var null = json.RawMessage("null")

// hideUnknown empties unknown keys of devinfo's configuration, because one may be a misspelt "delegates". It
// returns false if package config does not list all of them.
func hideUnknown(p map[string]json.RawMessage) bool {
	whole, _ := json.Marshal(p) // decoded from JSON
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

// bare returns the keys of another plugin's configuration that the checks read.
func bare(p map[string]json.RawMessage) map[string]json.RawMessage {
	kept := map[string]json.RawMessage{}
	for _, key := range []string{"type", "capabilities"} {
		if p[key] != nil {
			kept[key] = p[key]
		}
	}
	return kept
}

// bareDelegates reduces each delegate's configuration with bare. It leaves out a value that is not a list of
// configurations; the check reports it anyway.
func bareDelegates(raw json.RawMessage) json.RawMessage {
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return json.RawMessage(`"left out"`)
	}
	for n, d := range list {
		list[n] = bare(d)
	}
	kept, _ := json.Marshal(list) // decoded from JSON above
	return kept
}
