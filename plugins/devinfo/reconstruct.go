package devinfo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"

	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
)

// reconstruct fills in a missing or corrupt entry as ADD would have written it. An older build may have taken what ADD
// refuses now.
func (c *Call) reconstruct(e *journal.Entry) {
	for n := range c.Config.Delegates {
		if err := c.unusable(n); err != nil { // so it has not run
			c.Log.Warn("not running a delegate's DEL", "error", err)
		} else {
			e.Delegates = append(e.Delegates, c.Config.DelegateConfig(n))
		}
	}
	e.CapabilityArgs = c.capabilityArgs()
	_, spec, err := c.wantedSpec()
	if err != nil && spec.File == "" {
		c.Log.Warn("ignoring the CDI spec", "error", err) // ADD refuses such a spec, so it wrote none
	}
	if e.CDI.File == "" {
		e.CDI = spec
	}
	e.Pod, e.Requested.DeviceIDs = cmp.Or(e.Pod, c.Attachment.Pod().String()), c.Config.DeviceIDs
	e.CNIVersion, e.Args, e.Result = c.Config.CNIVersion, c.Args.CNIArgs, c.Config.PrevResult
}

// delegatesProblem returns why the delegates cannot run, or nil.
func (c *Call) delegatesProblem() error {
	if c.itself() {
		return failure.New(failure.Config, fmt.Errorf("attachment %s: devinfo runs as its own delegate", c.Key), "remove devinfo from delegates")
	}
	for n := range c.Config.Delegates {
		if problem := c.Config.DelegateProblem(n); problem != nil {
			return problem
		}
		if err := c.missing(n); err != nil {
			return err
		}
	}
	return nil
}

// unusable returns why the n-th delegate cannot run, whatever ADD takes.
func (c *Call) unusable(n int) error {
	if problem := c.Config.Unusable(n); problem != nil {
		return problem
	}
	return c.missing(n)
}

// missing returns an error if the program of the n-th delegate is not on this node now.
func (c *Call) missing(n int) error {
	if _, err := new(cniexec.Exec).FindInPath(c.Config.Delegates[n].Type, filepath.SplitList(c.Args.Path)); err != nil {
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
