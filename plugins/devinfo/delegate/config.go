package delegate

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	plugin "devinfo-cni.io/plugins/devinfo"
)

// runnable returns an error if the n-th delegate of the configuration cannot be run.
func runnable(c *plugin.Call, n int) error {
	if problem := c.Config.DelegateProblem(n); problem != nil {
		return problem
	}
	exec := cniexec.Exec{Root: c.Root}
	if _, err := exec.FindInPath(c.Config.Delegates[n].Type, filepath.SplitList(c.CNIPath)); err != nil {
		return failure.New(failure.Config, fmt.Errorf("delegates[%d]: %w", n, err), "install the plugin in a directory of CNI_PATH")
	}
	return nil
}

// network returns the delegates of the configuration, for verbs that do not concern one attachment.
func network(c *plugin.Call) (*cniexec.Network, error) {
	e := &journal.Entry{Key: journal.Key{Network: c.Config.Name}, CNIVersion: c.Config.CNIVersion}
	return c.Network(e, configs(c.Config), "")
}

// capabilityArgs returns the runtimeConfig for the delegates, with the path of an automatic device-info file.
func capabilityArgs(c *plugin.Call) map[string]json.RawMessage {
	if c.Attachment.Path == "" || c.Attachment.Path == c.Config.InfoFile {
		return c.Config.Runtime
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, c.Config.Runtime)
	all["CNIDeviceInfoFile"], _ = json.Marshal(c.Attachment.Path) // a string always encodes
	return all
}

// configs returns the delegates' configurations. Each contains the network's name and version, and
// devinfo's args, such as the pod's. A delegate without a device of its own also gets devinfo's deviceID and,
// as with Multus, pciBusID.
func configs(cfg *config.Config) (list []json.RawMessage) {
	for _, d := range cfg.Delegates {
		keys := object(d.Raw)
		set := func(key, value string) {
			if value != "" {
				keys[key], _ = json.Marshal(value) // a string always encodes
			}
		}
		set("name", cfg.Name)
		set("cniVersion", cfg.CNIVersion)
		if keys["deviceID"] == nil && keys["pciBusID"] == nil { // otherwise the delegate has its own device
			set("deviceID", cfg.DeviceID)
			busID := cfg.PCIBusID
			if _, err := pci.Parse(cfg.DeviceID); busID == "" && err == nil {
				busID = cfg.DeviceID
			}
			set("pciBusID", busID)
		}
		if len(cfg.Args) > 0 {
			args := object(keys["args"])
			for key, value := range cfg.Args {
				if key == "cni" { // contains the pod's cni-args
					cni := object(args[key])
					maps.Copy(cni, object(value))
					value, _ = json.Marshal(cni)
				}
				args[key] = value
			}
			keys["args"], _ = json.Marshal(args)
		}
		raw, _ := json.Marshal(keys)
		list = append(list, raw)
	}
	return list
}

// object returns the keys of a JSON object, and none for any other text.
func object(text json.RawMessage) map[string]json.RawMessage {
	keys := map[string]json.RawMessage{}
	if json.Unmarshal(text, &keys) != nil || keys == nil {
		return map[string]json.RawMessage{}
	}
	return keys
}
