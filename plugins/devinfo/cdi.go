package plugin

import (
	"fmt"
	"io/fs"
	"path"
	"syscall"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/check"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/private"
	"devinfo-cni.io/pkg/result"
)

// cdiSpec returns the CDI spec that the configuration asks for, and where its file is; nil if
// it asks for none.
func (c *call) cdiSpec() (journal.CDI, *config.CDI, error) {
	want, err := c.att.CDI(c.cfg)
	if err != nil || want == nil {
		return journal.CDI{}, nil, err
	}
	return journal.CDI{Dir: c.Node.CDIDir, File: cdispec.FileName(want.Kind, want.Name), Device: cdispec.Qualified(want.Kind, want.Name)}, want, nil
}

// readSpec reads our CDI spec, nil if there is none yet, and refuses one of another
// attachment or another program.
func (r *request) readSpec() ([]byte, error) {
	if r.cdi == nil {
		return nil, nil
	}
	const remedy = `give "cdi" another "name", such as "{podUID}-{ifName}", or none`
	if owner, err := r.Journal.Owner(journal.OfSpec, r.cdiFile.File); err != nil {
		return nil, err
	} else if owner != nil && *owner != r.key {
		return nil, fail(codeConfig, fmt.Errorf("CDI spec %s: belongs to attachment %s", r.cdiFile.File, owner), remedy)
	}
	text, err := check.OurSpec(r.Specs, r.cdiFile.File)
	if as[*check.ForeignSpecError](err) {
		return nil, fail(codeConfig, err, remedy)
	}
	return text, err
}

// granted is what the container may have of what was found, by CDI or, later, by NRI. Where
// neither could give it any node it is nothing.
func (r *request) granted(device *discovery.Device, info *devinfo.Info, prev *result.Result) (grant.Grant, error) {
	if info == nil || r.cdi == nil && (device.IsInterface || len(r.Node.CDIDevices) == 0) {
		return grant.Grant{}, nil
	}
	g := grant.Granter{Sys: r.Finder.Sys, Nodes: r.Nodes, Settings: r.Node, Pod: r.att.Pod()}
	if r.cdi != nil {
		g.SocketDir = r.socketDir(prev)
	}
	given, err := g.For(device, info)
	if err != nil {
		err = fmt.Errorf("grant of device %s: %w", discovery.Identity(info), err)
	}
	return given, err
}

// encodeSpec makes the CDI spec of what was granted; nil = none. A refused grant is a warning; strict
// makes it an error.
func (r *request) encodeSpec(given grant.Grant, info *devinfo.Info) ([]byte, error) {
	if r.cdi == nil {
		return nil, nil
	}
	if info == nil {
		r.log.Warn("no CDI spec is written: there is no device", "cdi", r.cdiFile.Device)
		return nil, nil
	}
	for _, refusal := range given.Refusals {
		if err := r.unlessStrict(fail(codeConfig, refusal, refusal.Remedy)); err != nil {
			return nil, err
		}
	}
	att := cdispec.Device{Kind: r.cdi.Kind, Name: r.cdi.Name, IfName: r.att.IfName, Info: info, Nodes: given.Nodes, Mounts: given.Mounts}
	var err error
	if att.InfoFile, err = r.mountable(); err != nil {
		return nil, err
	}
	spec, err := att.Spec()
	if err != nil {
		return nil, fail(codeConfig, err, "CDI specs are JSON")
	}
	return cdispec.Encode(spec), nil
}

// mountable is the path of the device-info file, by which the runtime mounts it later; ""
// if there is none, or somebody could put a link in its place until then.
func (r *request) mountable() (string, error) {
	if r.name == "" {
		return "", nil
	}
	if err := private.Unexposed(r.Node.DeviceInfoDir); as[*fs.PathError](err) {
		return "", err
	} else if err != nil {
		return "", r.unlessStrict(fail(codeConfig, fmt.Errorf("containers do not get the device-info file: %w", err),
			"see \"namei -l "+r.Node.DeviceInfoDir+"\": make each directory root's, with mode 0755, or set deviceInfoDir to one of which that is true"))
	}
	return r.Infos.Path(r.name), nil
}

// socketDir is the host's directory of the socket: configured, else that of the path
// in the result so far, which is the host's; "" = as in the container.
func (r *request) socketDir(prev *result.Result) string {
	if r.cdi.SocketDir != "" {
		return r.cdi.SocketDir
	}
	if own, _ := prev.Find(r.att.IfName, r.att.Netns); own.SocketPath != "" {
		return path.Dir(own.SocketPath)
	}
	return ""
}

// removeSpec removes the attachment's CDI spec from the directory that was cdiDir at
// its ADD. What is not ours is left alone.
func (c *call) removeSpec(spec journal.CDI) error {
	if spec.File == "" {
		return nil
	}
	ours, err := c.mayRemove(journal.OfSpec, spec.File)
	if err != nil || !ours {
		return err
	}
	dir := store.Open(spec.Dir)
	_, err = check.OurSpec(dir, spec.File)
	switch {
	case as[syscall.Errno](err):
		return err
	case err != nil: // ADD refuses it
		c.log.Warn("no CDI spec of ours: left alone", "error", err)
		return nil
	}
	return dir.Remove(spec.File)
}
