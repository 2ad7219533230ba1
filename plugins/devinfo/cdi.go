package plugin

import (
	"bytes"
	"fmt"
	"path"
	"syscall"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/attachment"
	"devinfo-cni.io/pkg/cdispec"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/journal"
)

// offering is the CDI device of an ADD.
type offering struct {
	want   *attachment.CDI // as configured; nil = none
	file   journal.CDI     // where its spec goes
	before []byte          // what we wrote there earlier; nil = nothing
	spec   []byte          // to be written; nil = none
	wrote  bool
}

// spec says which CDI spec the configuration asks for, and where its file is; nil when
// it does not.
func (c *call) spec() (journal.CDI, *attachment.CDI, error) {
	want, err := c.att.CDI(c.cfg)
	if err != nil || want == nil {
		return journal.CDI{}, nil, err
	}
	return journal.CDI{Dir: c.Node.CDIDir, File: cdispec.FileName(want.Kind, want.Name), Device: want.Qualified()}, want, nil
}

// readCDI looks at the place of the CDI spec, and refuses one that is another
// attachment's, or none of ours.
func (a *adding) readCDI() (err error) {
	a.cdi.file, a.cdi.want, err = a.spec()
	if err != nil || a.cdi.want == nil {
		return err
	}
	const remedy = `give "cdi" another "name", with {podUID} and {ifName} in it, say, or none`
	owner, owned, err := a.Journal.SpecOwner(a.cdi.file.File)
	if err == nil && owned && owner != a.key {
		return fail(codeConfig, &journal.OwnedError{What: "CDI spec", File: a.cdi.file.File, Owner: owner}, remedy)
	}
	if err == nil {
		a.cdi.before, err = ourSpec(a.Specs, a.cdi.file.File)
	}
	if as[*foreignError](err) {
		return fail(codeConfig, err, remedy)
	}
	return err
}

// A foreignError says that what is in the place of a CDI spec was not written by us.
type foreignError struct{ path string }

func (e *foreignError) Error() string { return e.path + ": a CDI spec that is not devinfo's" }

// ourSpec reads a CDI spec of ours; nil if there is none. An empty file is what a power
// failure leaves of one.
func ourSpec(dir *store.Dir, file string) ([]byte, error) {
	text, err := dir.Read(file)
	switch {
	case notThere(err):
		return nil, nil
	case err != nil:
		return nil, err
	case len(bytes.TrimSpace(text)) > 0 && !cdispec.Ours(text, file):
		return nil, &foreignError{dir.Path(file)}
	}
	return text, nil
}

// offer makes the CDI spec of what was found. What the container may not have is a
// warning; strict makes it an error.
func (a *adding) offer() error {
	if a.cdi.want == nil {
		return nil
	}
	if a.info == nil {
		a.log.Warn("no CDI spec is written, for there is no device", "cdi", a.cdi.file.Device)
		return nil
	}
	given, err := grant.Granter{
		Sys: a.Finder.Sys, Nodes: a.Nodes, Pod: a.att.Pod(), SocketDir: a.socketDir(), SF: a.device.SF, Shared: a.device.Shared,
		Policy: grant.Policy{Devices: a.Node.CDIDevices, SocketDirs: a.Node.SocketDirs},
	}.Of(a.info, a.device.Own)
	if err != nil {
		return fmt.Errorf("CDI device %s: %w", a.cdi.file.Device, err)
	}
	for _, r := range given.Refusals {
		if err := a.unlessStrict(fail(codeConfig, r, r.Remedy)); err != nil {
			return err
		}
	}
	att := cdispec.Attachment{Kind: a.cdi.want.Kind, Name: a.cdi.want.Name, IfName: a.att.IfName, Nodes: given.Nodes, Mounts: given.Mounts}
	if a.name != "" {
		att.InfoFile = a.Infos.Path(a.name)
	}
	spec, err := att.Spec()
	if err != nil {
		return fail(codeConfig, err, "CDI specs are JSON")
	}
	a.cdi.spec = cdispec.Encode(spec)
	return nil
}

// socketDir is the host's directory of the socket: configured, else that of the path
// in the result so far, which is the host's; "" = as in the container.
func (a *adding) socketDir() string {
	if a.cdi.want.SocketDir != "" {
		return a.cdi.want.SocketDir
	}
	if socket := a.target().SocketPath; socket != "" {
		return path.Dir(socket)
	}
	return ""
}

// writeSpec writes the CDI spec, unless it is there already: container runtimes read
// all specs anew when one changes.
func (a *adding) writeSpec() error {
	if a.cdi.spec == nil || bytes.Equal(a.cdi.spec, a.cdi.before) {
		return nil
	}
	a.cdi.wrote = true
	return a.Specs.Write(a.cdi.file.File, a.cdi.spec)
}

// restoreSpec is writeSpec undone.
func (a *adding) restoreSpec() error {
	switch {
	case !a.cdi.wrote:
		return nil
	case a.cdi.before == nil:
		return a.Specs.Remove(a.cdi.file.File)
	}
	return a.Specs.Write(a.cdi.file.File, a.cdi.before)
}

// removeFormerSpec removes the CDI spec of an earlier ADD that this one has given up.
func (a *adding) removeFormerSpec(former journal.CDI) {
	if _, owned, err := a.Journal.SpecOwner(former.File); former.File == "" || owned || err != nil {
		return
	}
	if err := a.removeSpec(former); err != nil {
		a.log.Warn("left behind", "error", err)
	}
}

// claimedSpec is the CDI spec of an attachment whose journal entry cannot be read.
func (c *call) claimedSpec() (journal.CDI, error) {
	claimed, err := c.Journal.SpecClaims(c.key)
	if err != nil || len(claimed) == 0 {
		return journal.CDI{}, err
	}
	return journal.CDI{Dir: c.Node.CDIDir, File: claimed[0]}, nil
}

// removeSpec removes the attachment's CDI spec from the directory that was cdiDir at
// its ADD. What is not ours is left alone.
func (c *call) removeSpec(spec journal.CDI) error {
	if spec.File == "" {
		return nil
	}
	owner, owned, err := c.Journal.SpecOwner(spec.File)
	if err == nil && owned && owner != c.key {
		c.log.Warn("left alone: the CDI spec is another attachment's", "file", spec.File, "owner", owner)
		return nil
	}
	dir := store.Open(spec.Dir)
	if err == nil {
		_, err = ourSpec(dir, spec.File)
	}
	switch {
	case as[syscall.Errno](err):
		return err
	case err != nil: // ADD refuses it
		c.log.Warn("left alone", "error", err)
		return nil
	}
	return dir.Remove(spec.File)
}
