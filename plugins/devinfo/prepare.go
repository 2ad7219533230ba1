package plugin

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/containernetworking/cni/libcni"
	cnins "github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/plugins/pkg/ns"

	"devinfo-cni.io/devinfo/store"
	"devinfo-cni.io/pkg/config"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// prepare reads all that an ADD depends on and refuses what it can. Nothing has
// been touched when it returns, but for the remains of an ADD that was killed.
func (p *Plugin) prepare(args *skel.CmdArgs) (*adding, error) {
	cfg, err := p.parse(args)
	if err != nil {
		return nil, err
	}
	if err := p.strict(cfg); err != nil {
		return nil, err
	}
	c, err := p.open(cfg, args)
	if err != nil {
		return nil, err
	}
	if c.nested() {
		return nil, fail(codeConfig, fmt.Errorf("attachment %s: devinfo runs as its own delegate", c.key), "take it out of delegates")
	}
	a := &adding{call: c, prev: cfg.PrevResult}
	for _, step := range []func() error{
		func() error { return checkNetns(args) },
		a.readDeclared, a.readName, a.checkDelegates, a.readPrevious, a.readCDI, a.readExisting, a.ours, a.checkMode, a.checkPrevResult,
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return a, a.begin(args)
}

// checkNetns refuses a namespace that is none, or our own. skel asks the latter
// too, but only when all is done.
func checkNetns(args *skel.CmdArgs) error {
	if err := ns.IsNSorErr(args.Netns); err != nil {
		return fail(codeNetns, fmt.Errorf("CNI_NETNS %s: %w", args.Netns, err), "it must be the path of the container's network namespace")
	}
	return ownNetns(args)
}

// ownNetns is the error that CNI_NETNS is our own namespace, and not by intent.
func ownNetns(args *skel.CmdArgs) error {
	if args.NetnsOverride == "1" || strings.EqualFold(args.NetnsOverride, "TRUE") {
		return nil
	}
	own, err := cnins.CheckNetNS(args.Netns)
	if err != nil {
		return err
	}
	if own {
		return fail(codeNetns, fmt.Errorf("CNI_NETNS %s is the plugin's own network namespace", args.Netns),
			"pass the container's, or set CNI_NETNS_OVERRIDE=1")
	}
	return nil
}

func (a *adding) readDeclared() error {
	info, warnings, err := a.att.Declared(a.cfg)
	if err != nil {
		return err
	}
	for _, w := range warnings {
		a.log.Warn("deviceInfo: " + w.String())
	}
	a.declared = info
	return nil
}

func (a *adding) readName() error {
	name, err := a.fileName()
	if err != nil || name != "" {
		a.name = name
		return err
	}
	err = errors.New("the runtime passed no runtimeConfig.CNIDeviceInfoFile: no device-info file is written")
	remedy := `set "deviceInfoFile": "auto"`
	switch {
	case !a.cfg.Capabilities["CNIDeviceInfoFile"]:
		remedy = `declare "capabilities": {"CNIDeviceInfoFile": true}; for a runtime without Multus ` + remedy
	case a.cfg.DeviceID == "":
		remedy = `Multus passes it only for a network that has a device (deviceID), by the annotation k8s.v1.cni.cncf.io/resourceName; else ` + remedy
	}
	return a.unlessStrict(fail(codeConfig, err, remedy))
}

func (a *adding) checkDelegates() error {
	for n := range a.cfg.Delegates {
		if err := a.runnable(n); err != nil {
			return err
		}
	}
	return nil
}

// runnable says why the n-th delegate of the configuration cannot be run.
func (c *call) runnable(n int) error {
	child := c.cfg.Delegates[n].Type
	if child == c.cfg.Type {
		return fail(codeConfig, fmt.Errorf("delegates[%d]: type %q is this plugin itself", n, child), "take it out")
	}
	if err := c.cni.has(child); err != nil {
		return fail(codeConfig, fmt.Errorf("delegates[%d]: %w", n, err), "install the plugin in a directory of CNI_PATH")
	}
	if _, err := libcni.NetworkPluginConfFromBytes(c.cfg.Delegates[n].Raw); err != nil {
		return fail(codeConfig, fmt.Errorf("delegates[%d]: %w", n, err), "correct this plugin configuration")
	}
	return nil
}

// readPrevious looks for an earlier ADD of this attachment, and for another's
// claim on the file.
func (a *adding) readPrevious() error {
	var err error
	if a.previous, err = a.call.entry(a.key); err != nil {
		return err
	}
	if e := a.previous; e != nil && len(e.Delegates) > 0 && e.Complete && e.BootID == a.BootID {
		return fail(codeConfig, fmt.Errorf("attachment %s exists, since %s", a.key, e.Time.Format("2006-01-02 15:04:05 MST")),
			"DEL first: to add it again would tear down what its delegates made")
	}
	if a.name == "" {
		return nil
	}
	owner, owned, err := a.Journal.Owner(a.name)
	if err == nil && owned && owner != a.key {
		return fail(codeConfig, &journal.OwnedError{What: "device-info file", File: a.att.Path, Owner: owner},
			"runtimeConfig.CNIDeviceInfoFile must be a path of this attachment's own")
	}
	return err
}

// readExisting reads the device-info file, else the device plugin's in its place,
// which the runtime should have copied there.
func (a *adding) readExisting() (err error) {
	if a.name == "" {
		return nil
	}
	if a.before, a.existing, err = a.parsed(a.Infos, a.name); err != nil || a.existing != nil {
		return err
	}
	if a.cfg.ResourceName == "" || a.cfg.DeviceID == "" {
		return nil
	}
	name := strings.ReplaceAll(a.cfg.ResourceName+"-"+a.cfg.DeviceID+"-device.json", "/", "-") // section 4.1
	if _, a.existing, err = a.parsed(a.Pool, name); as[*store.NameError](err) {
		return &config.Problem{Key: "resourceName", Value: fmt.Sprintf("%q", a.cfg.ResourceName), Want: "a resource such as vendor.example/name: " + err.Error()}
	}
	return err
}

// checkMode refuses a configuration that asks for nothing.
func (a *adding) checkMode() error {
	declared := a.declared != nil && a.declared.Type != ""
	if len(a.cfg.Delegates) > 0 || a.cfg.PrevResult != nil || a.cfg.DeviceID != "" || declared || a.existing != nil {
		return a.checkTypes()
	}
	return fail(codeConfig, errors.New("the configuration gives devinfo nothing to do"),
		`chain it after the plugin that makes the interface (then there is a prevResult), or name child plugins ("delegates": [{"type": …}]), `+
			`or name the device ("deviceID": "0000:01:00.2", or "deviceInfo": {"type": …})`)
}

// checkTypes refuses a declared type that is not the file's: neither is ever
// changed.
func (a *adding) checkTypes() error {
	if a.declared == nil || a.existing == nil || a.declared.Type == "" || a.existing.Type == "" || a.declared.Type == a.existing.Type {
		return nil
	}
	return fail(codeMismatch, fmt.Errorf("deviceInfo declares type %q, but the device-info file %s has type %q", a.declared.Type, a.att.Path, a.existing.Type),
		"correct deviceInfo, or the device plugin that wrote the file")
}

// checkPrevResult reads the prevResult, and refuses one that could not be passed on
// at the end.
func (a *adding) checkPrevResult() (err error) {
	if a.prev == nil {
		return nil
	}
	if a.res, err = result.Parse(a.prev, a.cfg.CNIVersion); err != nil {
		return fail(codeDecoding, fmt.Errorf("prevResult: %w", err), "the plugin before devinfo, or the runtime, must give a CNI result of a version up to 1.1.0")
	}
	return nil
}

// begin makes the journal entry, and cleans up after an ADD that was killed, or
// that another boot has swept away.
func (a *adding) begin(args *skel.CmdArgs) error {
	delegates, err := children(a.cfg)
	if err != nil {
		return err
	}
	a.entry = &journal.Entry{
		Key: a.key, Netns: args.Netns, File: a.name, Dir: a.Node.DeviceInfoDir, Created: a.before == nil, Before: a.before,
		Delegates: delegates, CNIVersion: a.cfg.CNIVersion, Args: args.Args, PrevResult: a.cfg.PrevResult,
		CDI: a.cdi.file,
	}
	if len(delegates) > 0 {
		a.entry.CapabilityArgs = a.capabilityArgs()
	} else {
		a.entry.PrevResult = nil // chained: nobody is handed it
	}
	if e := a.previous; e != nil && len(e.Delegates) > 0 {
		return a.cleanUp(e)
	}
	if e := a.previous; e != nil && e.File == a.name { // a repeated ADD: the first one knows what was there before
		a.entry.Created, a.entry.Before = e.Created, e.Before
	}
	return nil
}

// cleanUp finishes what an ADD that did not complete left, so that this one
// begins anew.
func (a *adding) cleanUp(e *journal.Entry) error {
	sameBoot := e.BootID == a.BootID
	if sameBoot {
		a.log.Warn("cleaning up after an ADD that was cut short", "since", e.Time)
	} else {
		a.log.Warn("cleaning up after an attachment of an older boot", "since", e.Time)
		e.Netns = "" // what is at its path now is another's
	}
	errs := a.cni.del(e, runtimeConf(e))
	if name, err := a.Infos.Name(e.Path()); e.File != "" && err == nil && sameBoot { // else the file is this boot's, and not ours
		if e.Created {
			errs = append(errs, a.Infos.Remove(name))
		} else {
			errs = append(errs, a.Infos.Write(name, e.Before))
		}
	}
	errs = append(errs, a.removeSpec(e.CDI), a.Journal.Drop(a.key))
	if err := followedBy(nil, errs...); err != nil {
		return fmt.Errorf("clean up after an earlier ADD: %w", err)
	}
	a.previous = nil
	if err := a.readCDI(); err != nil || a.name == "" {
		return err
	}
	if err := a.readExisting(); err != nil {
		return err
	}
	a.entry.Created, a.entry.Before = a.before == nil, a.before
	return nil
}

func notThere(err error) bool { return errors.Is(err, fs.ErrNotExist) }
