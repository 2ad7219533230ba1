package plugin

import (
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/discovery"
	"devinfo-cni.io/pkg/grant"
	"devinfo-cni.io/pkg/journal"
	"devinfo-cni.io/pkg/result"
)

// Add finds the device, writes the device-info file and, if asked, the CDI spec, and prints the
// result. What can be refused is refused before anything of this ADD is made; a dead former ADD may
// be cleaned up first. After that, every failure undoes everything.
//
// The facts of the file come from three places: the device as the kernel describes it
// (discovery.Device), the device-info file as others wrote it (earlier), and deviceInfo of the
// configuration (request.declared). They meet in describe, where devinfo.Merge has the precedence.
func (p *Plugin) Add(args *Args) (err error) {
	r, err := p.request(args)
	if err != nil {
		return err
	}
	undo := new(rollback)
	defer func() { err = undo.end(r, err) }()
	onDisk, err := r.readEarlier(undo)
	if err != nil {
		return err
	}
	undo.original = onDisk.original
	ran, now, err := r.runDelegates(undo, onDisk)
	if err != nil {
		return err
	}
	found, err := r.find(now, ran.result)
	if err != nil {
		return err
	}
	res := r.compose(ran.result, found.device, found.info)
	if err := r.commit(undo, now, ran, found); err != nil {
		return err
	}
	if err := r.interrupted(); err != nil {
		return err
	}
	if err := res.PrintTo(p.Stdout); err != nil {
		return fail(codeIO, fmt.Errorf("print the result: %w", err), "")
	}
	return nil
}

// found is what an ADD has found, and is about to record and write.
type found struct {
	device  *discovery.Device
	info    *devinfo.Info // nil = no device-info file
	granted grant.Grant
	spec    []byte // the CDI spec; nil = none
	leases  []journal.DeviceLease
}

// find finds the device, describes it, and decides which device nodes and mounts the container may
// have.
func (r *request) find(now earlier, res *result.Result) (f found, err error) {
	if f.device, err = r.Finder.Find(r.target(r.declared, now.others, res)); err != nil {
		return f, err
	}
	if f.info, err = r.describe(f.device, now); err != nil {
		return f, err
	}
	if f.granted, err = r.granted(f.device, f.info, res); err != nil {
		return f, err
	}
	if f.leases, err = r.foundLeases(f.device, f.info, f.granted); err != nil {
		return f, err
	}
	f.spec, err = r.encodeSpec(f.granted, f.info)
	return f, err
}

// describe makes the device information of what was found; nil if there is nothing to
// write. What is missing is a warning with a remedy, or an error if the configuration is
// strict.
func (r *request) describe(device *discovery.Device, now earlier) (*devinfo.Info, error) {
	for _, w := range device.Warnings {
		r.log.Warn(w)
	}
	if device.Shared {
		r.log.Info("the device belongs to the lower interface, and others use it too")
	}
	info := devinfo.Merge(now.facts(device, r.declared), device.Info, r.declared)
	if info == nil || discovery.Identity(info) == "" && device.Problem != nil {
		return nil, r.nothingFound(device)
	}
	violations := info.Validate()
	if err := violations.Err(); err != nil {
		return nil, r.invalid(err, info, device.Problem)
	}
	for _, v := range violations {
		r.log.Warn(v.String())
	}
	if device.Problem != nil {
		if err := r.unlessStrict(device.Problem); err != nil {
			return nil, err
		}
	}
	r.warnOfKept(info)
	return info, r.warnOfOrder(device, info)
}

func (r *request) nothingFound(device *discovery.Device) error {
	problem := device.Problem
	if problem == nil && device.Virtual && !r.cfg.Strict && len(r.cfg.DeviceIDs) == 0 {
		r.log.Info("interface " + r.att.IfName + " can have no device: no device-info file is written")
		return nil
	}
	if problem == nil {
		problem = fail(codeNotFound, fmt.Errorf("no device found for interface %s", r.att.IfName),
			`name one by deviceID (Multus does, if the network has a k8s.v1.cni.cncf.io/resourceName) or declare it in deviceInfo`)
	}
	return r.unlessStrict(problem)
}

// invalid is device information that breaks the specification. A socket's can
// only come from the configuration, which is then to blame; a device's is
// incomplete because of what the kernel lacks.
func (r *request) invalid(err error, info *devinfo.Info, problem error) error {
	if problem != nil {
		return r.unlessStrict(problem)
	}
	err = fail(codeInvalidInfo, err, "complete it by the configuration's deviceInfo; no file was written")
	if isSocket(info) {
		return err
	}
	return r.unlessStrict(err)
}

// warnOfKept says that a declared mode or role had no effect, since one that
// stands in a file is never rewritten.
func (r *request) warnOfKept(info *devinfo.Info) {
	declared, now := r.declared.Texts(), info.Texts()
	for _, key := range []string{"mode", "role"} {
		if declared[key] != "" && declared[key] != now[key] {
			r.log.Warn("the device-info file's value is kept", "key", string(info.Type)+"."+key, "file", now[key], "declared", declared[key])
		}
	}
}

// warnOfOrder tells of a devinfo that runs before the plugin that makes the interface: a
// device ID names a function whose interface is still the node's. The pciID that devinfo
// puts into the result is then lost, for the later plugin makes its own.
func (r *request) warnOfOrder(device *discovery.Device, info *devinfo.Info) error {
	if device.InNetns || device.OnSF || len(r.cfg.DeviceIDs) == 0 || len(r.children) > 0 || info.Type != devinfo.TypePCI {
		return nil
	}
	if has, known := r.prev.Has(r.att.IfName, r.att.Netns); has || !known {
		return nil
	}
	address, _ := pci.Parse(info.PCI.Address) // Validate has
	fn, ok, err := r.Finder.Sys.PCI(address)
	if err != nil || !ok {
		return err
	}
	ports, err := r.Finder.Sys.Ports(fn)
	if err != nil || len(ports) == 0 { // as on vfio-pci
		return err
	}
	r.log.Warn("interface "+r.att.IfName+" is not there yet, and "+ports[0].Name+" of "+info.PCI.Address+" is still the node's",
		"remedy", "name devinfo after the plugin that makes the interface: the result of that one will have no pciID")
	return nil
}

// compose makes the result: what the plugins before us say, with the device's
// identity and, where a file tells of it, an interface to hang it on.
func (r *request) compose(prev *result.Result, device *discovery.Device, info *devinfo.Info) *result.Result {
	res := prev
	if res == nil {
		res = result.New(r.cfg.CNIVersion)
	}
	if prev == nil || r.name != "" && info != nil {
		res.EnsureSandboxed(r.att.IfName, r.att.Netns)
	}
	pciID, socket := resultKeys(info)
	if device.OnSF && !r.cfg.SubfunctionParent {
		pciID = "" // the parent's: nobody must take the one for the other
	}
	res.Identify(r.att.IfName, r.att.Netns, pciID, socket)
	return res
}

func resultKeys(info *devinfo.Info) (pciID, socketPath string) {
	texts := info.Texts()
	if info != nil && isSocket(info) {
		return "", texts["path"]
	}
	return texts["pci-address"], ""
}

// interrupted says that a signal has come: the child that ran has ended, the rest
// is not begun.
func (c *call) interrupted() error {
	select {
	case sig := <-c.signals:
		return fail(codeTryAgain, fmt.Errorf("interrupted by signal %q", sig), "everything done so far was undone")
	default:
		return nil
	}
}
