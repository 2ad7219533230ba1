package delegate

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	plugin "devinfo-cni.io/plugins/devinfo"
)

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

func network(c *plugin.Call) (*cniexec.Network, error) {
	e := &journal.Entry{Key: journal.Key{Network: c.Config.Name}, CNIVersion: c.Config.CNIVersion}
	return c.Network(e, c.Config.DelegateConfigs(), "")
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
