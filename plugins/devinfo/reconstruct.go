package devinfo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
)

// reconstruct fills in a missing or corrupt entry as ADD would have written it. An older build may have taken what ADD
// refuses now.
func (c *Call) reconstruct(e *journal.Entry) {
	for n := range c.Config.Delegates {
		if err := c.runnable(n, c.Config.Unusable(n)); err != nil { // so it has not run
			c.Log.Warn("not running a delegate's DEL", "error", err)
		} else {
			e.Delegates = append(e.Delegates, c.Config.DelegateConfig(n))
		}
	}
	e.CapabilityArgs = c.capabilityArgs()
	cdi, err := c.Attachment.CDI(c.Config)
	if err != nil && cdi == nil {
		c.Log.Warn("ignoring the CDI spec", "error", err) // ADD refuses such a spec, so it wrote none
	}
	if e.CDI.File == "" {
		e.CDI = c.specOf(cdi)
	}
	e.Pod, e.Requested.DeviceIDs = cmp.Or(e.Pod, c.Attachment.Pod().String()), c.Config.DeviceIDs
	e.CNIVersion, e.Args, e.Result = c.Config.CNIVersion, c.Attachment.CNIArgs, c.Config.PrevResult
}

// delegatesProblem returns why the delegates cannot run, or nil.
func (c *Call) delegatesProblem() error {
	if c.itself() {
		return failure.New(failure.Config, fmt.Errorf("attachment %s: devinfo runs as its own delegate", c.Key), "remove devinfo from delegates")
	}
	for n := range c.Config.Delegates {
		if err := c.runnable(n, c.Config.DelegateProblem(n)); err != nil {
			return err
		}
	}
	return nil
}

// runnable returns the problem of the n-th delegate's configuration, or an error if its program is not on this node now.
func (c *Call) runnable(n int, problem *config.Problem) error {
	if problem != nil {
		return problem
	}
	if _, err := new(cniexec.Exec).FindInPath(c.Config.Delegates[n].Type, filepath.SplitList(c.CNIPath)); err != nil {
		return failure.New(failure.Config, fmt.Errorf("delegates[%d]: %w", n, err), "install the plugin in a directory of CNI_PATH")
	}
	return nil
}

// capabilityArgs returns the runtimeConfig for the delegates, with the path of an automatic device-info file.
func (c *Call) capabilityArgs() map[string]json.RawMessage {
	if c.Attachment.Path == "" || c.Attachment.Path == c.Config.InfoFile {
		return c.Config.Runtime
	}
	all := map[string]json.RawMessage{}
	maps.Copy(all, c.Config.Runtime)
	all["CNIDeviceInfoFile"], _ = json.Marshal(c.Attachment.Path) // a string always encodes
	return all
}
