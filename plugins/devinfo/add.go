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

// Add finds the device, writes the device-info file and, if asked, the CDI spec, and prints the CNI
// result. The doc comment of describe lists where the facts of the file come from.
//
// Add refuses everything it can before it changes anything, but it may clean up after a former ADD of
// the attachment. A later failure undoes everything.
func (p *Plugin) Add(args *Args) (err error) {
	r, err := p.request(args)
	if err != nil {
		return err
	}
	rollback := &rollback{call: r.call}
	defer func() { err = rollback.end(err) }()
	written, err := r.takeOver(rollback)
	if err != nil {
		return err
	}
	if rollback.file, err = r.readInfoFile(written); err != nil {
		return err
	}
	if err := r.cdi.refuseOwned(); err != nil {
		return err
	}
	res, file, err := r.runDelegates(rollback, rollback.file)
	if err != nil {
		return err
	}
	plan, err := r.decide(file, res)
	if err != nil {
		return err
	}
	if err := r.commit(rollback, file, res, plan); err != nil {
		return err
	}
	if err := p.interrupted(); err != nil {
		return err
	}
	if err := r.finalResult(res, plan).PrintTo(p.Stdout); err != nil {
		return fail(codeIO, fmt.Errorf("print the result: %w", err), "")
	}
	return nil
}

// plan is what an ADD is about to record and write.
type plan struct {
	device  *discovery.Device
	info    *devinfo.Info // what the device-info file will say; nil = no file
	granted grant.Grant
	spec    []byte // the CDI spec; nil = none
	leases  []journal.DeviceLease
}

// decide finds the device and decides what to write about it, which device nodes and mounts the container
// may have, and which devices the pod takes.
func (r *request) decide(file infoFile, res *result.Result) (p plan, err error) {
	if p.device, err = r.plugin.Finder.Find(r.target(r.declared, file.external, res)); err != nil {
		return p, err
	}
	if p.info, err = r.describe(p.device, file); err != nil {
		return p, err
	}
	if p.granted, err = r.grantFor(p.device, p.info, res); err != nil {
		return p, err
	}
	if p.leases, err = r.foundLeases(p.device, p.info, p.granted); err != nil {
		return p, err
	}
	p.spec, err = r.cdi.encode(p.granted, p.info, r.fileName)
	return p, err
}

// describe composes what the device-info file will say. Four sources give facts, and [devinfo.Merge]
// lays them over each other, key by key. The first that has a key wins:
//
//  1. deviceInfo of the configuration: any key. [request.declaredInfo] fills in its placeholders.
//  2. The kernel, asked by [discovery.Finder.Find]: pci-address, pf-pci-address, rdma-device and
//     representor-device; of a vDPA device also parent-device, driver and path. The path of a socket is
//     the socketPath of the CNI result, which is the prevResult or that of the last delegate.
//  3. The device-info file as devinfo wrote it in a former ADD or for the delegates, if it is about the
//     same device: see [infoFile.facts].
//  4. The device-info file as another program wrote it, the runtime or a delegate; if the file is
//     missing, the device plugin's: see [request.readInfoFile]. Facts that only this source has, such
//     as vhost-net and unknown keys, stay.
//
// Some keys have another order: type, version, the path of a socket, mode and role. The doc comment of
// Merge has it. No source gives the version but the file; otherwise it is [devinfo.SpecVersion].
//
// The same sources, the deviceIDs of the configuration, the pciID of the CNI result and the interface in
// the pod name the device. Find refuses them if they name different devices, and [request.checkType] a
// type that is not the file's.
//
// A missing description is a warning with a remedy, or an error if the configuration is strict.
func (r *request) describe(device *discovery.Device, file infoFile) (*devinfo.Info, error) {
	for _, w := range device.Warnings {
		r.log.Warn(w)
	}
	if device.Shared {
		r.log.Info("the device belongs to the lower interface, and others use it too")
	}
	info := devinfo.Merge(file.facts(device, r.declared), device.Info, r.declared)
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
	if err := r.unlessStrict(device.Problem); err != nil {
		return nil, err
	}
	r.warnOfKept(info)
	return info, r.warnOfOrder(device, info)
}

// nothingFound returns the error, or logs the warning, that there is no device to describe.
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

// invalid returns the error, or logs the warning, of device information that breaks the specification.
// A socket's comes from the configuration alone, so strict makes no difference; a device's lacks what the
// kernel does not know.
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

// warnOfKept warns if a declared mode or role has no effect because the file already has another one.
func (r *request) warnOfKept(info *devinfo.Info) {
	declared, merged := r.declared.Texts(), info.Texts()
	for _, key := range []string{"mode", "role"} {
		if declared[key] != "" && declared[key] != merged[key] {
			r.log.Warn("the device-info file's value is kept", "key", string(info.Type)+"."+key, "file", merged[key], "declared", declared[key])
		}
	}
}

// warnOfOrder warns of a devinfo that runs before the plugin that makes the interface: the deviceID
// names a function whose interface is still on the host. That plugin makes a result of its own, so the
// pciID that devinfo adds is lost.
func (r *request) warnOfOrder(device *discovery.Device, info *devinfo.Info) error {
	if device.InNetns || device.SF != "" || len(r.cfg.DeviceIDs) == 0 || len(r.delegates) > 0 || info.Type != devinfo.TypePCI {
		return nil
	}
	if has, known := r.prev.Has(r.att.IfName, r.att.Netns); has || !known {
		return nil
	}
	address, _ := pci.Parse(info.PCI.Address) // Validate has
	fn, ok, err := r.plugin.Finder.Sys.PCI(address)
	if err != nil || !ok {
		return err
	}
	ports, err := r.plugin.Finder.Sys.Ports(fn)
	if err != nil || len(ports) == 0 { // as on vfio-pci
		return err
	}
	r.log.Warn("interface "+r.att.IfName+" is not there yet, and "+ports[0].Name+" of "+info.PCI.Address+" is still the node's",
		"remedy", "name devinfo after the plugin that makes the interface: the result of that one will have no pciID")
	return nil
}

// finalResult returns the CNI result: res, the result so far, with the identity of the device and, if a
// device-info file describes it, an interface to hang it on.
func (r *request) finalResult(res *result.Result, plan plan) *result.Result {
	first := res == nil
	if first {
		res = result.New(r.cfg.CNIVersion)
	}
	if first || r.fileName != "" && plan.info != nil {
		res.EnsureSandboxed(r.att.IfName, r.att.Netns)
	}
	texts := plan.info.Texts()
	pciID, socket := texts["pci-address"], ""
	if isSocket(plan.info) {
		pciID, socket = "", texts["path"]
	} else if plan.device.SF != "" && !r.cfg.SubfunctionParent {
		pciID = "" // the parent's, which must not be taken for the sub-function
	}
	res.Identify(r.att.IfName, r.att.Netns, pciID, socket)
	return res
}
