package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// wantedSpec returns the configuration and the place of the CDI spec, or nil and nothing if there is none.
func (c *Call) wantedSpec() (*config.CDI, journal.CDI, error) {
	want, err := c.Attachment.CDI(c.Config)
	if err != nil || want == nil {
		return nil, journal.CDI{}, err
	}
	return want, journal.CDI{Dir: c.Node.CDIDir, File: cdispec.FileName(want.Kind, want.Name), Device: cdispec.Qualified(want.Kind, want.Name)}, nil
}

func (a *Addition) refuseOwned() error {
	const remedy = `set "name" in "cdi" to a unique name such as "{podUID}-{ifName}", or omit it`
	foreign, err := a.Foreign(a.Key, journal.OfSpec, a.spec.File)
	if foreign != "" {
		return failure.New(failure.Config, fmt.Errorf("CDI spec %s: %s", a.spec.File, foreign), remedy)
	}
	if err == nil {
		_, err = check.ReadSpec(a.Specs, a.spec.File)
	}
	if errors.As(err, new(*check.ForeignSpecError)) {
		return failure.New(failure.Config, err, remedy)
	}
	return err
}

// grantFor returns the device nodes and mounts that the container may have, by CDI or later by NRI. Without a CDI spec
// they are empty if the device is the pod's interface, or if no node setting allows devices.
func (a *Addition) grantFor(device *discovery.Device, info *devinfo.Info) (grant.Grant, error) {
	if info == nil || a.wantCDI == nil && (device.IsInterface || len(a.Node.AllowedDevices) == 0) {
		return grant.Grant{}, nil
	}
	g := grant.Granter{Sys: a.Finder.Sys, Nodes: a.Nodes, Settings: a.Node, Pod: a.Attachment.Pod()}
	if g.Nodes == nil {
		g.Nodes = grant.NodesBelow("")
	}
	if a.wantCDI != nil {
		g.SocketDir = a.wantCDI.SocketDir
		if own, _ := a.Result.Find(a.Attachment.IfName, a.Attachment.Netns); g.SocketDir == "" && own.SocketPath != "" {
			g.SocketDir = path.Dir(own.SocketPath)
		}
	}
	granted, err := g.For(device, info)
	if err != nil {
		err = fmt.Errorf("grant of device %s: %w", discovery.Identity(info), err)
	}
	return granted, err
}

func (a *Addition) encodeSpec(granted grant.Grant, info *devinfo.Info) ([]byte, error) {
	if info == nil {
		a.Log.Warn("not writing a CDI spec, because no device was found", "cdi", a.spec.Device)
		return nil, nil
	}
	for _, refusal := range granted.Refusals {
		if err := a.unlessStrict(failure.New(failure.Config, refusal, refusal.Remedy)); err != nil {
			return nil, err
		}
	}
	device := cdispec.Device{Kind: a.wantCDI.Kind, Name: a.wantCDI.Name, IfName: a.Attachment.IfName, Info: info, Nodes: granted.Nodes, Mounts: granted.Mounts}
	var err error
	if device.InfoFile, err = a.mountablePath(); err != nil {
		return nil, err
	}
	spec, err := device.Spec()
	if err != nil {
		return nil, failure.New(failure.Config, err, "CDI specs are JSON")
	}
	return cdispec.Encode(spec), nil
}

// mountablePath returns the path of the device-info file for the runtime to mount. It returns "" if the attachment
// has no file, or if a user other than root could replace the file first.
func (a *Addition) mountablePath() (string, error) {
	if a.File.Name == "" {
		return "", nil
	}
	if err := store.Unexposed(a.Node.DeviceInfoDir); errors.As(err, new(*fs.PathError)) {
		return "", err
	} else if err != nil {
		return "", a.unlessStrict(failure.New(failure.Config, fmt.Errorf("containers do not get the device-info file: %w", err),
			"see \"namei -l "+a.Node.DeviceInfoDir+"\"; chown each directory to root with mode 0755, or set deviceInfoDir to a directory where that holds"))
	}
	return a.Infos.Path(a.File.Name), nil
}
