package plugin

import (
	"fmt"
	"io/fs"
	"path"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/check"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/pkg/core/safefile"
)

// cdiSpec is the CDI spec of an attachment.
type cdiSpec struct {
	*call
	want *config.CDI // cdi of the configuration; nil = no spec
	file journal.CDI
}

func (c *call) wantedSpec() (cdiSpec, error) {
	want, err := c.att.CDI(c.cfg)
	if err != nil || want == nil {
		return cdiSpec{}, err
	}
	return cdiSpec{c, want, journal.CDI{
		Dir: c.plugin.Node.CDIDir, File: cdispec.FileName(want.Kind, want.Name), Device: cdispec.Qualified(want.Kind, want.Name),
	}}, nil
}

// refuseOwned refuses a CDI spec whose file belongs to another attachment or another program.
func (s cdiSpec) refuseOwned() error {
	if s.want == nil {
		return nil
	}
	const remedy = `set "name" in "cdi" to a unique name such as "{podUID}-{ifName}", or omit it`
	foreign, err := s.foreignReason(journal.OfSpec, s.file.File)
	if foreign != "" {
		return fail(codeConfig, fmt.Errorf("CDI spec %s: %s", s.file.File, foreign), remedy)
	}
	if err == nil {
		_, err = check.ReadSpec(s.plugin.Specs, s.file.File)
	}
	if as[*check.ForeignSpecError](err) {
		return fail(codeConfig, err, remedy)
	}
	return err
}

// grantFor returns the device nodes and mounts that the container may have, by CDI or later by NRI. Without a CDI spec
// they are empty if the device is the pod's interface, or if no node setting allows devices.
func (r *request) grantFor(device *discovery.Device, info *devinfo.Info, res *result.Result) (grant.Grant, error) {
	if info == nil || r.cdi.want == nil && (device.IsInterface || len(r.plugin.Node.AllowedDevices) == 0) {
		return grant.Grant{}, nil
	}
	g := grant.Granter{Sys: r.plugin.Finder.Sys, Nodes: r.plugin.Nodes, Settings: r.plugin.Node, Pod: r.att.Pod()}
	if r.cdi.want != nil {
		g.SocketDir = r.cdi.socketDir(res)
	}
	granted, err := g.For(device, info)
	if err != nil {
		err = fmt.Errorf("grant of device %s: %w", discovery.Identity(info), err)
	}
	return granted, err
}

// encode returns the content of the CDI spec, or nil if there is no spec. A refused device node or mount is a
// warning, or an error if the configuration is strict.
func (s cdiSpec) encode(granted grant.Grant, info *devinfo.Info, file string) ([]byte, error) {
	if s.want == nil {
		return nil, nil
	}
	if info == nil {
		s.log.Warn("not writing a CDI spec, because no device was found", "cdi", s.file.Device)
		return nil, nil
	}
	for _, refusal := range granted.Refusals {
		if err := s.unlessStrict(fail(codeConfig, refusal, refusal.Remedy)); err != nil {
			return nil, err
		}
	}
	device := cdispec.Device{Kind: s.want.Kind, Name: s.want.Name, IfName: s.att.IfName, Info: info, Nodes: granted.Nodes, Mounts: granted.Mounts}
	var err error
	if device.InfoFile, err = s.mountablePath(file); err != nil {
		return nil, err
	}
	spec, err := device.Spec()
	if err != nil {
		return nil, fail(codeConfig, err, "CDI specs are JSON")
	}
	return cdispec.Encode(spec), nil
}

// mountablePath returns the path of the device-info file for the runtime to mount. It returns "" if the attachment
// has no file, or if a user other than root could replace the file first.
func (s cdiSpec) mountablePath(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if err := safefile.Unexposed(s.plugin.Node.DeviceInfoDir); as[*fs.PathError](err) {
		return "", err
	} else if err != nil {
		return "", s.unlessStrict(fail(codeConfig, fmt.Errorf("containers do not get the device-info file: %w", err),
			"see \"namei -l "+s.plugin.Node.DeviceInfoDir+"\"; chown each directory to root with mode 0755, or set deviceInfoDir to a directory where that holds"))
	}
	return s.plugin.Infos.Path(name), nil
}

// socketDir returns the socket's directory on the host, from the configuration or the result; "" = as in the container.
func (s cdiSpec) socketDir(res *result.Result) string {
	if s.want.SocketDir != "" {
		return s.want.SocketDir
	}
	if own, _ := res.Find(s.att.IfName, s.att.Netns); own.SocketPath != "" {
		return path.Dir(own.SocketPath)
	}
	return ""
}
