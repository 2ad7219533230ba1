package validate

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"devinfo-cni.io/pkg/core/config"
)

// defaultFile holds the settings of nodes without a file of their own.
const defaultFile = "default.json"

// isSettings reports whether an object is a file with settings of nodes, or a ConfigMap with such files. It also
// recognizes a file by a misspelt key.
func (d *Document) isSettings(object map[string]json.RawMessage) bool {
	switch {
	case d.object.Kind == configMap:
		return strings.Contains(d.object.Metadata.Name, "devinfo-settings") // unless the chart's fullnameOverride is set
	case object["apiVersion"] != nil || object["type"] != nil || object["plugins"] != nil:
		return false
	}
	for key := range object {
		if config.Nearest(key, config.NodeKeys) != "" {
			return true
		}
	}
	return slices.Contains([]string{filepath.Base(config.NodeFile), defaultFile}, filepath.Base(d.File))
}

// settings checks node.json, or each file in a ConfigMap of the agent.
func (d *Document) settings() {
	var object struct{ Data map[string]string }
	if d.object.Kind != configMap || json.Unmarshal(d.data, &object) != nil {
		d.nodeSettings("", d.data)
		return
	}
	files := object.Data
	for _, name := range slices.Sorted(maps.Keys(files)) {
		path := "data." + name
		switch {
		case !strings.HasSuffix(name, ".json"):
			d.warn(path, nil, "is ignored: name the key default.json for all nodes, or NODE.json for one node")
			continue
		case name != defaultFile && files[defaultFile] == "":
			d.warn(path, nil, "is for a node of the name %s: if it is meant for all nodes, name the key %s", strings.TrimSuffix(name, ".json"), defaultFile)
		}
		if d.readJSON(path, []byte(files[name])) {
			d.nodeSettings(path, []byte(files[name]))
		}
	}
}

// nodeSettings reports all errors in settings. [config.ParseNode] returns only the first one.
func (d *Document) nodeSettings(path string, data json.RawMessage) {
	for left := config.Object(data); ; data = config.Encode(left) {
		_, err := config.ParseNode(data, "")
		if err == nil {
			return
		}
		key, rule, _ := strings.Cut(errors.Unwrap(err).Error(), ": ")
		value, there := left[key]
		if !there {
			d.wrong(path, nil, "%v", errors.Unwrap(err))
			return
		}
		d.wrong(path+"."+key, value, "%s", rule)
		delete(left, key)
	}
}
