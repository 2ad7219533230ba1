package validate

import (
	"encoding/json"
	"fmt"
	"strings"

	"devinfo-cni.io/pkg/core/config"
)

// multusPlugin is the type of Multus in CNI configurations.
const multusPlugin = "multus"

// makers are the plugins that the SR-IOV network operator puts before spec.metaPlugins, by the kind of its object.
var makers = map[string]string{"SriovNetwork": "sriov", "SriovIBNetwork": "ib-sriov", "OVSNetwork": "ovs"}

// metaPlugins reads the list of plugins that the SR-IOV network operator would make of its object, and reports whether
// there is one. spec.metaPlugins are JSON objects with commas between them, without brackets.
func (n *network) metaPlugins(maker string) bool {
	var made struct {
		object
		Spec struct{ ResourceName, MetaPlugins string }
	}
	if err := json.Unmarshal(n.data, &made); err != nil {
		n.wrong("", nil, "must be an object of the SR-IOV network operator: %v", err)
		return false
	}
	own := strings.TrimSpace(made.Spec.MetaPlugins)
	if own == "" {
		n.Skipped = noPlugin
		return false
	}
	var plugins []json.RawMessage
	raw := "[" + own + "]"
	if err := json.Unmarshal([]byte(raw), &plugins); err != nil {
		n.wrong("spec.metaPlugins", nil, "must be plugin configurations in JSON, with commas between them and no brackets around them: %v", err)
		return false
	}
	if !n.readJSON("spec.metaPlugins", []byte(raw)) {
		return false
	}
	plugins = append([]json.RawMessage{fmt.Appendf(nil, `{"type": %q}`, maker)}, plugins...)
	n.path, n.name, n.multus, n.operator = "spec", config.Encode(made.Metadata.Name), true, true
	n.resource = made.Spec.ResourceName != ""
	n.object = map[string]json.RawMessage{"cniVersion": config.Encode("0.3.1"), "name": n.name, "plugins": config.Encode(plugins)}
	return true
}

// element returns the path of a plugin in the list.
func (n *network) element(i int) string {
	switch {
	case !n.operator:
		return fmt.Sprintf("%s.plugins[%d]", n.path, i)
	case i == 0:
		return n.path
	}
	return fmt.Sprintf("%s.metaPlugins[%d]", n.path, i-1)
}

// multusDelegates returns the delegates of Multus, alone or in a list, and their path; nil = there are none.
func multusDelegates(object map[string]json.RawMessage) (delegates json.RawMessage, path string) {
	var plugins []map[string]json.RawMessage
	_ = json.Unmarshal(object["plugins"], &plugins) // check has the error
	for i, conf := range append(plugins, object) {
		if text(conf["type"]) == multusPlugin && conf["delegates"] != nil {
			path = fmt.Sprintf("plugins[%d].delegates", i)
			if i == len(plugins) {
				path = "delegates"
			}
			return conf["delegates"], path
		}
	}
	return nil, ""
}

// checkDelegates checks the networks in the configuration of Multus: the first is the default network of each pod.
func checkDelegates(n network, raw json.RawMessage, path string) {
	var delegates []map[string]json.RawMessage
	if json.Unmarshal(raw, &delegates) != nil {
		n.wrong(path, raw, "must be a list of CNI configurations")
		return
	}
	var skipped int
	for i, object := range delegates {
		one := network{Checker: n.Checker, Document: n.Document, path: fmt.Sprintf("%s[%d]", path, i), object: object, multus: true, primary: true}
		if one.name = object["name"]; one.name == nil {
			one.name = n.object["name"]
		}
		if one.check(); n.Skipped != "" {
			skipped++
		}
		n.Skipped = ""
	}
	if skipped == len(delegates) {
		n.Skipped = noPlugin
	}
}
