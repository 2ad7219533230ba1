package plugin

import (
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
)

// Add finds the device, writes the device-info file and, if configured, the CDI spec, and prints the CNI
// result. The doc comment of describe lists where the facts of the file come from.
//
// Add checks as much as it can before it changes anything. Only the cleanup after a former ADD of the attachment
// may come earlier. If a later step fails, Add undoes all its changes.
func (p *Plugin) Add(args *Args) (err error) {
	r, err := p.request(args)
	if err != nil {
		return err
	}
	undo := &rollback{call: r.call}
	defer func() { err = undo.end(err) }()
	written, err := r.takeOver(undo)
	if err != nil {
		return err
	}
	if undo.file, err = r.readInfoFile(written); err != nil {
		return err
	}
	if err := r.cdi.refuseOwned(); err != nil {
		return err
	}
	res, file, err := r.runDelegates(undo, undo.file)
	if err != nil {
		return err
	}
	plan, err := r.decide(file, res)
	if err != nil {
		return err
	}
	if err := r.commit(undo, file, res, plan); err != nil {
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

// plan is the device, and the content that ADD records and writes about it.
type plan struct {
	device  *discovery.Device
	info    *devinfo.Info // content of the device-info file; nil = no file
	granted grant.Grant
	spec    []byte // the CDI spec; nil = none
	leases  []journal.DeviceLease
}

// decide finds the device and returns the plan for it.
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

// describe composes the content of the device-info file. Each fact comes from one of these sources:
//
//   - deviceInfo of the configuration ([attachment.Attachment.Declared]): any key but version.
//   - The kernel, through [discovery.Finder.Find]: pci-address, pf-pci-address, rdma-device (not of vDPA) and
//     representor-device; for vDPA also parent-device, driver and path.
//   - The CNI result, which Find reads too: its socketPath is the path of a socket. The CNI result is the result
//     of the last delegate, else the prevResult.
//   - The device-info file ([request.readInfoFile]): any key. The runtime or a delegate wrote it; if neither did,
//     the device plugin's file replaces it. Content that devinfo itself wrote, in a former ADD or for the delegates,
//     is merged into it like Find's facts, if it is about the same device ([infoFile.facts]).
//
// [devinfo.Merge] decides by key which source wins. deviceInfo is its declared layer, Find's facts are the found one,
// and the file's facts are the existing one.
//
// Sources that name different devices are an error: Find compares deviceInfo, the deviceIDs, the file unless
// devinfo wrote it, the pciID of the CNI result, and the interface in the pod. Different types in deviceInfo
// and the file are an error too ([request.checkType]). A device that cannot be described is a warning
// with a remedy, or an error if the configuration is strict.
func (r *request) describe(device *discovery.Device, file infoFile) (*devinfo.Info, error) {
	for _, w := range device.Warnings {
		r.log.Warn(w)
	}
	if device.Shared {
		r.log.Info("the device belongs to the lower interface and is shared with other interfaces")
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

// nothingFound returns the error of an ADD without a device, or logs it as a warning.
func (r *request) nothingFound(device *discovery.Device) error {
	problem := device.Problem
	if problem == nil && device.Virtual && !r.cfg.Strict && len(r.cfg.DeviceIDs) == 0 {
		r.reason = "interface " + r.att.IfName + " is virtual and has no device: not writing a device-info file"
		r.log.Info(r.reason)
		return nil
	}
	if problem == nil {
		problem = fail(codeNotFound, fmt.Errorf("no device found for interface %s", r.att.IfName),
			`set deviceID (Multus sets it if the network has a k8s.v1.cni.cncf.io/resourceName), or declare the device in deviceInfo`)
	}
	return r.unlessStrict(problem)
}

// invalid returns the error, or logs the warning, of device information that breaks the specification.
// For a socket it is always an error, because only the configuration can be wrong. For a device it is a warning
// unless the configuration is strict, because the kernel may lack a fact.
func (r *request) invalid(err error, info *devinfo.Info, problem error) error {
	if problem != nil {
		return r.unlessStrict(problem)
	}
	err = fail(codeInvalidInfo, err, "correct it with deviceInfo in the configuration; no file was written")
	if discovery.IsSocket(info.Type) {
		return err
	}
	return r.unlessStrict(err)
}

// warnOfKept warns if a declared mode or role has no effect because the file already has another one.
func (r *request) warnOfKept(info *devinfo.Info) {
	declared, merged := r.declared.Texts(), info.Texts()
	for _, key := range []string{"mode", "role"} {
		if declared[key] != "" && declared[key] != merged[key] {
			r.log.Warn("keeping the device-info file's value instead of the declared one", "key", string(info.Type)+"."+key, "file", merged[key], "declared", declared[key])
		}
	}
}

// warnOfOrder logs a warning if devinfo runs before the plugin that creates the interface. In that case the
// deviceID names a function whose interface is still on the host. The later plugin then prints a result of its
// own, and the pciID that devinfo adds is lost.
func (r *request) warnOfOrder(device *discovery.Device, info *devinfo.Info) error {
	if device.InNetns || device.SF != "" || len(r.cfg.DeviceIDs) == 0 || len(r.delegates) > 0 || info.Type != devinfo.TypePCI {
		return nil
	}
	if has, known := r.prev.Has(r.att.IfName, r.att.Netns); has || !known {
		return nil
	}
	address, _ := pci.Parse(info.PCI.Address) // Validate has parsed it
	fn, ok, err := r.plugin.Finder.Sys.PCI(address)
	if err != nil || !ok {
		return err
	}
	ports, err := r.plugin.Finder.Sys.Ports(fn)
	if err != nil || len(ports) == 0 { // no interface, for example on vfio-pci
		return err
	}
	r.log.Warn("interface "+r.att.IfName+" does not exist yet, and "+ports[0].Name+" of "+info.PCI.Address+" is still in the host network namespace",
		"remedy", "put devinfo after the plugin that creates the interface; otherwise the final result has no pciID")
	return nil
}

// finalResult returns the CNI result: res with the device's pciID or socketPath. If res is nil or a device-info file
// describes the device, finalResult makes sure that the result has a sandboxed interface.
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
	if plan.info != nil && discovery.IsSocket(plan.info.Type) {
		pciID, socket = "", texts["path"]
	} else if plan.device.SF != "" && !r.cfg.SubfunctionParent {
		pciID = "" // the parent's address, which does not identify the sub-function
	}
	res.Identify(r.att.IfName, r.att.Netns, pciID, socket)
	return res
}
