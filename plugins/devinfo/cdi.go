package devinfo

import (
	"errors"
	"fmt"
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

// specOf returns the place of the CDI spec, or nothing for nil.
func (c *Call) specOf(cdi *config.CDI) journal.CDI {
	if cdi == nil {
		return journal.CDI{}
	}
	return journal.CDI{Dir: c.Node.CDIDir, File: cdispec.FileName(cdi.Kind, cdi.Name), Device: cdispec.Qualified(cdi.Kind, cdi.Name)}
}

// refuseOwned returns an error if the CDI spec, if there is one, belongs to another attachment or program.
func (c *Call) refuseOwned(spec journal.CDI) error {
	if spec.File == "" {
		return nil
	}
	const remedy = `set "name" in "cdi" to a unique name such as "{podUID}-{ifName}", or omit it`
	foreign, err := c.Foreign(c.Key, journal.OfSpec, spec.File)
	if foreign != "" {
		return failure.New(failure.Config, fmt.Errorf("CDI spec %s: %s", spec.File, foreign), remedy)
	}
	if err == nil {
		err = store.UnlessGone(check.ReadSpec(c.Specs, spec.File))
	}
	if errors.As(err, new(*check.ForeignSpecError)) {
		return failure.New(failure.Config, err, remedy)
	}
	return err
}

// grantFor returns the device nodes and mounts that the container may have, by CDI or later by NRI. Without a CDI spec
// they are empty if the device is the pod's interface, or if no node setting allows devices.
func (r *request) grantFor(device *discovery.Device, info *devinfo.Info) (grant.Grant, error) {
	if info == nil || r.cdi == nil && (device.IsInterface || len(r.c.Node.AllowedDevices) == 0) {
		return grant.Grant{}, nil
	}
	g := grant.Granter{Sys: r.c.Finder.Sys, Nodes: r.c.Nodes, Settings: r.c.Node, Pod: r.c.Attachment.Pod()}
	if r.cdi != nil {
		g.SocketDir = r.cdi.SocketDir
		if own, _ := r.result.Find(r.c.Attachment.IfName, r.c.Attachment.Netns); g.SocketDir == "" && own.SocketPath != "" {
			g.SocketDir = path.Dir(own.SocketPath)
		}
	}
	granted, err := g.For(device, info)
	if err != nil {
		err = fmt.Errorf("grant of device %s: %w", discovery.Identity(info), err)
	}
	return granted, err
}

func (r *request) encodeSpec(granted grant.Grant, info *devinfo.Info) ([]byte, error) {
	if info == nil {
		r.c.Log.Warn("not writing a CDI spec, because no device was found", "cdi", cdispec.Qualified(r.cdi.Kind, r.cdi.Name))
		return nil, nil
	}
	for _, refusal := range granted.Refusals {
		if _, err := r.c.unlessStrict(failure.New(failure.Config, refusal, refusal.Remedy)); err != nil {
			return nil, err
		}
	}
	device := cdispec.Device{Kind: r.cdi.Kind, Name: r.cdi.Name, IfName: r.c.Attachment.IfName, Info: info, Nodes: granted.Nodes, Mounts: granted.Mounts}
	var err error
	if device.InfoFile, err = r.mountablePath(); err != nil {
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
func (r *request) mountablePath() (string, error) {
	if r.file.name == "" {
		return "", nil
	}
	if err := store.Unexposed(r.c.Node.DeviceInfoDir); err != nil {
		_, err = r.c.unlessStrict(failure.New(failure.Config, fmt.Errorf("containers do not get the device-info file: %w", err),
			"see \"namei -l "+r.c.Node.DeviceInfoDir+"\"; chown each directory to root with mode 0755, or set deviceInfoDir to a directory where that holds"))
		return "", err
	}
	return r.c.Infos.Path(r.file.name), nil
}
