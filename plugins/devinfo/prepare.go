package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/config/attachment"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/pkg/host/link"
)

// Prepare reads the arguments of ADD, cleans up after a former ADD of the attachment, and reads the device-info file. It
// returns an error if ADD cannot succeed.
func (a *Addition) Prepare() (err error) {
	if err := checkNetns(a.Args); err != nil {
		return err
	}
	doubts, err := attachment.Vet(a.Config)
	if err != nil {
		return err
	}
	var warnings devinfo.Violations
	if a.Declared, warnings, err = a.Attachment.Declared(a.Config); err != nil {
		return err
	}
	for _, w := range slices.Concat(doubts, warnings) {
		a.Log.Warn("deviceInfo: " + w.String())
	}
	if a.File.Name, err = a.wantedFile(); err != nil {
		return err
	}
	if a.wantCDI, a.spec, err = a.wantedSpec(); err != nil {
		return err
	}
	if a.Result, err = a.prevResult(); err != nil {
		return err
	}
	written, err := a.takeOver()
	if err != nil {
		return err
	}
	if err := a.readInfoFile(written); err != nil || a.wantCDI == nil {
		return err
	}
	return a.refuseOwned()
}

// checkNetns returns an error unless CNI_NETNS is a network namespace other than this process's own.
func checkNetns(args *Args) error {
	const remedy = "it must be the path of the container's network namespace"
	if err := link.CheckNetns(args.Netns); errors.Is(err, link.ErrNoNetns) {
		return failure.New(failure.Netns, fmt.Errorf("CNI_NETNS %w", err), remedy)
	} else if err != nil {
		return failure.New(failure.IO, fmt.Errorf("CNI_NETNS: %w", err), remedy)
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
		return failure.New(failure.Netns, err, "mount proc")
	}
	if own {
		return failure.New(failure.Netns, fmt.Errorf("CNI_NETNS %s is the plugin's own network namespace", args.Netns),
			"pass the container's network namespace, or set CNI_NETNS_OVERRIDE=1")
	}
	return nil
}

// wantedFile returns the name of the device-info file. Without a path it logs a warning, or fails if strict is set.
func (a *Addition) wantedFile() (string, error) {
	name, err := a.infoFileName()
	if err != nil || name != "" {
		return name, err
	}
	err = errors.New("the runtime passed no runtimeConfig.CNIDeviceInfoFile: no device-info file is written")
	if len(a.Config.Unknown) > 0 { // it may be a misspelt deviceInfoFile or capabilities
		err = fmt.Errorf("%w; %s", err, a.Config.Unknown[0])
	}
	remedy := `set "deviceInfoFile": "auto"`
	switch {
	case !a.Config.Capabilities["CNIDeviceInfoFile"]:
		remedy = `declare "capabilities": {"CNIDeviceInfoFile": true} if the network has a k8s.v1.cni.cncf.io/resourceName, else ` + remedy
	case a.Config.DeviceID == "":
		remedy = `give the network the annotation k8s.v1.cni.cncf.io/resourceName (Multus passes the path only if the network has a device), or ` + remedy
	}
	return "", a.unlessStrict(failure.New(failure.Config, err, remedy))
}

// prevResult parses the prevResult. It fails if devinfo could not pass the result on.
func (c *Call) prevResult() (*result.Result, error) {
	if c.Config.PrevResult == nil {
		return nil, nil
	}
	res, err := result.Parse(c.Config.PrevResult, c.Config.CNIVersion)
	if err != nil {
		return nil, failure.New(failure.Decoding, fmt.Errorf("prevResult: %w", err), "the plugin before devinfo, or the runtime, must pass a CNI result of version 1.1.0 or earlier")
	}
	return res, nil
}

// unlessStrict returns the error if the configuration is strict. Otherwise it logs a warning, and keeps it as the reason
// why the entry has no device.
func (c *Call) unlessStrict(err error) error {
	if err == nil || c.Config.Strict {
		return err
	}
	log := c.Log
	c.reason = err.Error()
	if remedy := failure.Remedy(err); remedy != "" {
		log = log.With("remedy", remedy)
		c.reason += ": " + remedy
	}
	log.Warn(err.Error())
	return nil
}

// Target returns all facts for [discovery.Finder.Find]. existing is from the device-info file, res the result so far.
func (c *Call) Target(declared, existing *devinfo.Info, res *result.Result) discovery.Target {
	prev, _ := res.Find(c.Attachment.IfName, c.Attachment.Netns)
	return discovery.Target{
		Declared: declared, DeviceIDs: c.Config.DeviceIDs, Existing: existing,
		PCIID: prev.PCIID, SocketPath: prev.SocketPath,
		Netns: c.Attachment.Netns, IfName: c.Attachment.IfName,
		FollowLower: c.Config.FollowLower, SubfunctionParent: c.Config.SubfunctionParent,
	}
}
