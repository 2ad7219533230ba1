package plugin

import (
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/containernetworking/cni/pkg/skel"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// Add finds the device, writes the device-info file and, where asked, the CDI spec,
// and prints the result. What can be refused is refused before anything is touched;
// after that, every failure puts everything back.
func (p *Plugin) Add(args *skel.CmdArgs) (err error) {
	a, err := p.prepare(args)
	if err != nil {
		return err
	}
	done := false
	defer func() {
		if !done {
			err = followedBy(err, a.rollBack()...)
		}
	}()
	if len(a.entry.Delegates) > 0 {
		if err := a.delegate(); err != nil {
			return err
		}
	}
	if err := a.find(); err != nil {
		return err
	}
	if err := a.offer(); err != nil {
		return err
	}
	res, err := a.compose()
	if err != nil {
		return err
	}
	if err := a.record(); err != nil {
		return err
	}
	if err := a.interrupted(); err != nil {
		return err
	}
	if err := res.PrintTo(p.Stdout); err != nil {
		return fail(codeIO, fmt.Errorf("print the result: %w", err), "")
	}
	done = true
	a.removeFormer()
	return nil
}

// adding is one ADD on its way.
type adding struct {
	*call
	name     string        // of the device-info file; "" = none
	before   []byte        // its content before ADD; nil = there was none
	existing *devinfo.Info // what others wrote there, or the device plugin's file in its place: a source
	known    *devinfo.Info // what we wrote there ourselves, earlier or before the delegates: none
	declared *devinfo.Info
	previous *journal.Entry  // of an earlier ADD that is repeated
	entry    *journal.Entry  // of this one
	started  int             // delegates that have been started
	journal  bool            // the entry is written
	prev     json.RawMessage // the result of the plugins before us
	res      *result.Result  // the same, read; nil = there is none
	device   *discovery.Device
	info     *devinfo.Info // to be written; nil = nothing
	wrote    bool          // the file was touched
	cdi      offering      // the CDI device
}

// find looks for the device, with all that is known now, and makes the device
// information of it.
func (a *adding) find() error {
	device, err := a.Finder.Find(a.target())
	if err != nil {
		return err
	}
	a.device = device
	a.warn(device.Warnings)
	if device.Shared {
		a.log.Info("the device is that of the lower interface, which others use too")
	}
	info := devinfo.Merge(a.base(), device.Info, a.declared)
	if info == nil || discovery.Identity(info) == "" && device.Problem != nil {
		return a.nothingFound(device.Problem)
	}
	violations := info.Validate()
	if err := violations.Err(); err != nil {
		return a.invalid(err, info, device.Problem)
	}
	for _, v := range violations {
		a.log.Warn(v.String())
	}
	if device.Problem != nil {
		if err := a.unlessStrict(device.Problem); err != nil {
			return err
		}
	}
	a.warnOfKept(info)
	a.info = info
	return nil
}

func (a *adding) target() discovery.Target {
	prev, _ := a.res.Find(a.att.IfName, a.att.Netns)
	return discovery.Target{
		Declared: a.declared, DeviceIDs: a.cfg.DeviceIDs, Existing: a.existing,
		PCIID: prev.PCIID, SocketPath: prev.SocketPath,
		Netns: a.att.Netns, IfName: a.att.IfName,
		FollowLower: a.cfg.FollowLower, SubfunctionParent: a.cfg.SubfunctionParent,
	}
}

// nothingFound is an ADD without device: a warning that says what would have
// helped; strict makes it an error.
func (a *adding) nothingFound(problem error) error {
	if problem == nil {
		problem = fail(codeNotFound, fmt.Errorf("no device found for interface %s", a.att.IfName),
			`name one by deviceID (Multus does, if the network has a k8s.v1.cni.cncf.io/resourceName) or declare it in deviceInfo`)
	}
	return a.unlessStrict(problem)
}

// invalid is device information that breaks the specification. A socket's can
// only come from the configuration, which is then to blame; a device's is
// incomplete because of what the kernel lacks.
func (a *adding) invalid(err error, info *devinfo.Info, problem error) error {
	if problem != nil {
		return a.unlessStrict(problem)
	}
	err = fail(codeInvalidInfo, err, "complete it by the configuration's deviceInfo; no file was written")
	if info.Type == devinfo.TypeVhostUser || info.Type == devinfo.TypeMemif {
		return err
	}
	return a.unlessStrict(err)
}

// unlessStrict gives the error back if the configuration is strict; else it
// becomes a warning.
func (a *adding) unlessStrict(err error) error {
	if a.cfg.Strict {
		return err
	}
	attrs := []any{}
	if remedy := remedyOf(err); remedy != "" {
		attrs = append(attrs, "remedy", remedy)
	}
	a.log.Warn(err.Error(), attrs...)
	return nil
}

func (a *adding) warn(warnings []string) {
	for _, w := range warnings {
		a.log.Warn(w)
	}
}

// warnOfKept says that a declared mode or role had no effect, since one that
// stands in a file is never rewritten.
func (a *adding) warnOfKept(info *devinfo.Info) {
	kept := func(key, declared, now string) {
		if declared != "" && declared != now {
			a.log.Warn("the device-info file's value is kept", "key", key, "file", now, "declared", declared)
		}
	}
	if d := a.declared; d != nil && d.VhostUser != nil && info.VhostUser != nil {
		kept("vhost-user.mode", d.VhostUser.Mode, info.VhostUser.Mode)
	}
	if d := a.declared; d != nil && d.Memif != nil && info.Memif != nil {
		kept("memif.mode", d.Memif.Mode, info.Memif.Mode)
		kept("memif.role", d.Memif.Role, info.Memif.Role)
	}
}

// delegate journals the attachment, writes what is known so far, for the children
// that read the file, and runs them.
func (a *adding) delegate() error {
	a.listen()
	known, err := a.Finder.Find(a.early()) // a conflict shows before anything is touched
	if err != nil {
		return err
	}
	if err := a.put(); err != nil {
		return err
	}
	if a.name != "" {
		if info := devinfo.Merge(a.existing, known.Info, a.declared); info != nil && info.Validate().Err() == nil {
			if err := a.write(info); err != nil {
				return err
			}
			a.known = info
		}
	}
	prev, started, err := a.cni.add(a.entry, runtimeConf(a.entry), a.interrupted)
	a.started, a.prev, a.entry.Result = started, prev, prev
	if err != nil {
		return err
	}
	if a.res, err = result.Parse(prev, a.cfg.CNIVersion); err != nil {
		return fail(codeDecoding, err, "the last delegate printed it")
	}
	return a.reread()
}

// early is the target before the delegates have made the interface.
func (a *adding) early() discovery.Target {
	t := a.target()
	t.Netns = ""
	return t
}

// reread takes in what the delegates have written to the file themselves.
func (a *adding) reread() error {
	if a.name == "" {
		return nil
	}
	_, now, err := a.parsed(a.Infos, a.name)
	if err != nil || now == nil || reflect.DeepEqual(now, a.known) {
		return err
	}
	a.existing, a.known = now, nil
	return a.checkTypes()
}

// compose makes the result: what the plugins before us say, with the device's
// identity and, where a file tells of it, an interface to hang it on.
func (a *adding) compose() (*result.Result, error) {
	res := a.res
	if res == nil {
		res = result.New(a.cfg.CNIVersion)
	}
	if a.prev == nil || a.name != "" && a.info != nil {
		res.EnsureSandboxed(a.att.IfName, a.att.Netns)
	}
	pciID, socket := resultKeys(a.info)
	if a.device.OnSF && !a.cfg.SubfunctionParent {
		pciID = "" // the parent's: nobody must take the one for the other
	}
	return res, res.Identify(a.att.IfName, a.att.Netns, pciID, socket)
}

func resultKeys(info *devinfo.Info) (pciID, socketPath string) {
	switch {
	case info == nil:
	case info.Type == devinfo.TypePCI && info.PCI != nil:
		return info.PCI.Address, ""
	case info.Type == devinfo.TypeVDPA && info.VDPA != nil:
		return info.VDPA.Address, ""
	case info.Type == devinfo.TypeVhostUser && info.VhostUser != nil:
		return "", info.VhostUser.Path
	case info.Type == devinfo.TypeMemif && info.Memif != nil:
		return "", info.Memif.Path
	}
	return "", ""
}

// interrupted says that a signal has come: the child that ran has ended, the rest
// is not begun.
func (a *adding) interrupted() error {
	select {
	case sig := <-a.signals:
		return fail(codeTryAgain, fmt.Errorf("interrupted by signal %q", sig), "everything done so far was undone")
	default:
		return nil
	}
}

// parsed reads a device-info file, and what it says. Both are nil when it is not
// there, the latter also when it makes no sense, which is warned of.
func (a *adding) parsed(dir *store.Dir, name string) ([]byte, *devinfo.Info, error) {
	data, err := dir.Read(name)
	if notThere(err) {
		return nil, nil, nil
	} else if err != nil {
		return nil, nil, fail(codeOf(err), err, "remove what is in the place of the device-info file")
	}
	info, err := dir.Parse(name, data)
	if as[*store.CorruptError](err) {
		a.log.Warn("device-info file taken as absent", "error", err)
		return data, nil, nil
	}
	return data, info, err
}
