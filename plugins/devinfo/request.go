package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cniexec"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/pkg/host/link"
)

// A request is an ADD with validated arguments.
type request struct {
	*call
	fileName  string            // name of the device-info file; "" = none
	declared  *devinfo.Info     // deviceInfo of the configuration, with placeholders expanded
	delegates []json.RawMessage // configurations of the delegates
	cdi       cdiSpec
	prev      *result.Result // the prevResult; nil = none
}

// request reads the arguments of ADD and returns an error if they are unusable.
func (p *Plugin) request(args *Args) (*request, error) {
	c, err := p.openStrict(args)
	if err != nil {
		return nil, err
	}
	if c.nested() {
		return nil, fail(codeConfig, fmt.Errorf("attachment %s: devinfo runs as its own delegate", c.key), "remove devinfo from delegates")
	}
	if err := checkNetns(args); err != nil {
		return nil, err
	}
	r := &request{call: c}
	var warnings devinfo.Violations
	if r.declared, warnings, err = c.att.Declared(c.cfg); err != nil {
		return nil, err
	}
	for _, w := range warnings {
		c.log.Warn("deviceInfo: " + w.String())
	}
	if r.fileName, err = r.wantedFile(); err != nil {
		return nil, err
	}
	for n := range c.cfg.Delegates {
		if err := p.checkRunnable(c.cfg, n, args.Path); err != nil {
			return nil, err
		}
	}
	r.delegates = delegateConfigs(c.cfg)
	if r.cdi, err = c.wantedSpec(); err != nil {
		return nil, err
	}
	r.prev, err = c.prevResult()
	return r, err
}

// checkNetns returns an error unless CNI_NETNS is a network namespace other than this process's own.
func checkNetns(args *Args) error {
	const remedy = "it must be the path of the container's network namespace"
	if err := link.CheckNetns(args.Netns); errors.Is(err, link.ErrNoNetns) {
		return fail(codeNetns, fmt.Errorf("CNI_NETNS %w", err), remedy)
	} else if err != nil {
		return fail(codeIO, fmt.Errorf("CNI_NETNS: %w", err), remedy)
	}
	return ownNetns(args)
}

// ownNetns returns an error if CNI_NETNS is this process's own namespace, unless CNI_NETNS_OVERRIDE allows it.
func ownNetns(args *Args) error {
	if args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "TRUE") {
		return nil
	}
	own, err := link.IsOwnNetns(args.Netns)
	if err != nil {
		return fail(codeNetns, err, "mount proc")
	}
	if own {
		return fail(codeNetns, fmt.Errorf("CNI_NETNS %s is the plugin's own network namespace", args.Netns),
			"pass the container's network namespace, or set CNI_NETNS_OVERRIDE=1")
	}
	return nil
}

// wantedFile returns the name of the device-info file. Without a path it logs a warning, or fails if strict is set.
func (r *request) wantedFile() (string, error) {
	name, err := r.infoFileName()
	if err != nil || name != "" {
		return name, err
	}
	err = errors.New("the runtime passed no runtimeConfig.CNIDeviceInfoFile: no device-info file is written")
	if len(r.cfg.Unknown) > 0 { // it may be a misspelt deviceInfoFile or capabilities
		err = fmt.Errorf("%w; %s", err, r.cfg.Unknown[0])
	}
	remedy := `set "deviceInfoFile": "auto"`
	switch {
	case !r.cfg.Capabilities["CNIDeviceInfoFile"]:
		remedy = `declare "capabilities": {"CNIDeviceInfoFile": true} if the network has a k8s.v1.cni.cncf.io/resourceName, else ` + remedy
	case r.cfg.DeviceID == "":
		remedy = `give the network the annotation k8s.v1.cni.cncf.io/resourceName (Multus passes the path only if the network has a device), or ` + remedy
	}
	return "", r.unlessStrict(fail(codeConfig, err, remedy))
}

// checkRunnable returns an error if the n-th delegate of the configuration cannot be run.
func (p *Plugin) checkRunnable(cfg *config.Config, n int, cniPath string) error {
	if problem := cfg.DelegateProblem(n); problem != nil {
		return problem
	}
	exec := cniexec.Exec{Root: p.Root}
	if _, err := exec.FindInPath(cfg.Delegates[n].Type, filepath.SplitList(cniPath)); err != nil {
		return fail(codeConfig, fmt.Errorf("delegates[%d]: %w", n, err), "install the plugin in a directory of CNI_PATH")
	}
	return nil
}

// prevResult parses the prevResult. It fails if devinfo could not pass the result on.
func (c *call) prevResult() (*result.Result, error) {
	if c.cfg.PrevResult == nil {
		return nil, nil
	}
	res, err := result.Parse(c.cfg.PrevResult, c.cfg.CNIVersion)
	if err != nil {
		return nil, fail(codeDecoding, fmt.Errorf("prevResult: %w", err), "the plugin before devinfo, or the runtime, must pass a CNI result of version 1.1.0 or earlier")
	}
	return res, nil
}

// unlessStrict returns the error if the configuration is strict; otherwise it logs a warning.
func (c *call) unlessStrict(err error) error {
	if err == nil || c.cfg.Strict {
		return err
	}
	log := c.log
	c.reason = err.Error()
	if remedy := remedyOf(err); remedy != "" {
		log = log.With("remedy", remedy)
		c.reason += ": " + remedy
	}
	log.Warn(err.Error())
	return nil
}

// target returns all facts for [discovery.Finder.Find]. existing is from the device-info file, res the result so far.
func (c *call) target(declared, existing *devinfo.Info, res *result.Result) discovery.Target {
	prev, _ := res.Find(c.att.IfName, c.att.Netns)
	return discovery.Target{
		Declared: declared, DeviceIDs: c.cfg.DeviceIDs, Existing: existing,
		PCIID: prev.PCIID, SocketPath: prev.SocketPath,
		Netns: c.att.Netns, IfName: c.att.IfName,
		FollowLower: c.cfg.FollowLower, SubfunctionParent: c.cfg.SubfunctionParent,
	}
}
