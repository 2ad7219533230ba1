package devinfo

import (
	"cmp"
	"fmt"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// A plan is what ADD will record, write and print.
type plan struct {
	device *discovery.Device
	info   *devinfo.Info // content of the device-info file; nil = no file
	spec   []byte        // the CDI spec; nil = none
	entry  *journal.Entry
}

// decide finds the device and decides what becomes of it. It changes nothing.
func (r *request) decide() (p plan, err error) {
	device, merged, err := r.find(r.c.Attachment.Netns)
	if err != nil {
		return p, err
	}
	info, reason, err := r.describe(device, merged)
	if err != nil {
		return p, err
	}
	granted, err := r.grantFor(device, info)
	if err != nil {
		return p, err
	}
	leases, err := r.foundLeases(device, info, granted)
	if err != nil {
		return p, err
	}
	if r.cdi != nil {
		if p.spec, err = r.encodeSpec(granted, info); err != nil {
			return p, err
		}
	}
	e := r.newEntry(info)
	e.Leases = journal.MergeLeases(e.Leases, leases...)
	e.Complete, e.InNetns = true, device.InNetns
	if device.ReachedFromInterface {
		e.Interface = device.Interface
	}
	if e.Reason = reason; info != nil {
		e.Device = journal.Identity{Type: string(info.Type), ID: discovery.Identity(info)}
	}
	if e.SocketDir = granted.SocketDir; p.spec == nil {
		e.CDI, e.SocketDir = journal.CDI{}, ""
	}
	p.device, p.info, p.entry = device, info, e
	return p, nil
}

// newEntry returns the journal entry, with everything that ADD may create. info is the content for the device-info
// file; nil = none. It keeps what this ADD has recorded for its delegates.
func (r *request) newEntry(info *devinfo.Info) *journal.Entry {
	t := r.c.target(r.declared, nil, r.result)
	e := r.c.blankEntry()
	e.Requested = journal.Requested{
		DeviceIDs: t.DeviceIDs, PCIID: t.PCIID, SocketPath: t.SocketPath, FollowLower: t.FollowLower, SubfunctionParent: t.SubfunctionParent,
	}
	e.File, e.Dir, e.CDI = r.file.name, r.c.Node.DeviceInfoDir, r.c.specOf(r.cdi)
	if r.declared != nil {
		e.Requested.Declared = r.declared.Encode()
	}
	if info != nil && e.File != "" {
		e.Wrote, e.Info, e.Kept = true, info.Encode(), sameInfo(r.file.original, info)
		if _, err := devinfo.Parse(r.file.original); err == nil && !e.Kept {
			e.Original = r.file.original
		}
	}
	if last := r.last; last != nil && len(last.Delegates) > 0 {
		e.Delegates, e.CapabilityArgs, e.PrevResult, e.Result = last.Delegates, last.CapabilityArgs, last.PrevResult, r.result.JSON()
		e.Leases = slices.Clone(last.Leases)
	}
	return e
}

// target returns all facts for [discovery.Finder.Find]. existing is from the device-info file, res the result so far.
func (c *Call) target(declared, existing *devinfo.Info, res *result.Result) discovery.Target {
	prev, _ := res.Find(c.Attachment.IfName, c.Attachment.Netns)
	return discovery.Target{
		Declared: declared, DeviceIDs: c.Config.DeviceIDs, Existing: existing,
		PCIID: prev.PCIID, SocketPath: prev.SocketPath,
		Netns: c.Attachment.Netns, IfName: c.Attachment.IfName,
		FollowLower: c.Config.FollowLower, SubfunctionParent: c.Config.SubfunctionParent,
	}
}

// find finds the device, of the interface in a network namespace among others, or without looking for an interface if netns
// is "". It composes the content of the device-info file, which may be incomplete. Each fact comes from one of these sources:
//
//   - deviceInfo of the configuration ([attachment.Attachment.Declared]): any key but version.
//   - The kernel, through [discovery.Finder.Find]: pci-address, pf-pci-address, rdma-device (not of vDPA) and
//     representor-device; for vDPA also parent-device, driver and path.
//   - The CNI result, which Find reads too: its socketPath is the path of a socket. The CNI result is the result
//     of the last delegate, else the prevResult.
//   - The device-info file ([Call.readInfoFile]): any key. The runtime or a delegate wrote it; if neither did,
//     the device plugin's file replaces it. Content that devinfo itself wrote, in a former ADD or for the delegates,
//     is merged into it like Find's facts, if it is about the same device ([infoFile.facts]).
//
// [devinfo.Merge] decides by key which source wins. deviceInfo is its declared layer, Find's facts are the found one,
// and the file's facts are the existing one.
//
// Sources that name different devices are an error: Find compares deviceInfo, the deviceIDs, the file unless
// devinfo wrote it, the pciID of the CNI result, and the interface in the pod. Different types in deviceInfo
// and the file are an error too, because ADD changes neither.
func (r *request) find(netns string) (*discovery.Device, *devinfo.Info, error) {
	declared, file := r.declared, r.file.external
	if declared != nil && file != nil && declared.Type != "" && file.Type != "" && declared.Type != file.Type {
		return nil, nil, failure.New(failure.Mismatch, fmt.Errorf("deviceInfo declares type %q, but the device-info file %s has type %q", declared.Type, r.c.Attachment.Path, file.Type),
			"correct deviceInfo, or the device plugin that wrote the file")
	}
	target := r.c.target(declared, file, r.result)
	target.Netns = netns
	device, err := r.c.Finder.Find(target)
	if err != nil {
		return nil, nil, err
	}
	return device, devinfo.Merge(r.file.facts(device, declared), device.Info, declared), nil
}

// describe returns the content of the device-info file, unless what is known of the device is not enough. That is a warning
// with a remedy, which is the reason for having no file, or an error if the configuration is strict.
func (r *request) describe(device *discovery.Device, info *devinfo.Info) (_ *devinfo.Info, reason string, _ error) {
	for _, w := range device.Warnings {
		r.c.Log.Warn(w)
	}
	if device.Shared {
		r.c.Log.Info("the device belongs to the lower interface and is shared with other interfaces")
	}
	if info == nil || discovery.Identity(info) == "" && device.Problem != nil {
		reason, err := r.nothingFound(device)
		return nil, reason, err
	}
	violations := info.Validate()
	if err := violations.Err(); err != nil {
		err = cmp.Or(device.Problem, failure.New(failure.InvalidInfo, err, "correct it with deviceInfo in the configuration; no file was written"))
		if device.Problem == nil && discovery.IsSocket(info.Type) { // only the configuration can be wrong; of a device the kernel may lack a fact
			return nil, "", err
		}
		reason, err := r.c.unlessStrict(err)
		return nil, reason, err
	}
	for _, v := range violations {
		r.c.Log.Warn(v.String())
	}
	if _, err := r.c.unlessStrict(device.Problem); err != nil {
		return nil, "", err
	}
	declared, merged := r.declared.Texts(), info.Texts()
	for _, key := range []string{"mode", "role"} { // an existing file's value wins
		if declared[key] != "" && declared[key] != merged[key] {
			r.c.Log.Warn("keeping the device-info file's value instead of the declared one", "key", string(info.Type)+"."+key, "file", merged[key], "declared", declared[key])
		}
	}
	return info, "", r.warnOfOrder(device, info)
}

// nothingFound returns the error of an ADD without a device, or logs it as a warning.
func (r *request) nothingFound(device *discovery.Device) (reason string, _ error) {
	if device.Problem == nil && device.Virtual && device.Below == "" && !r.c.Config.Strict && len(r.c.Config.DeviceIDs) == 0 {
		reason = "interface " + r.c.Attachment.IfName + " is virtual and has no device: not writing a device-info file"
		r.c.Log.Info(reason)
		return reason, nil
	}
	nothing := failure.New(failure.NotFound, fmt.Errorf("no device found for interface %s", r.c.Attachment.IfName), remedyWithoutDevice(device, r.c.Config.DeviceIDs))
	return r.c.unlessStrict(cmp.Or(device.Problem, nothing))
}

func remedyWithoutDevice(device *discovery.Device, ids []config.NamedID) string {
	switch {
	case len(ids) > 0:
		return fmt.Sprintf("%s is %q: it must be the PCI address of a function (0000:3b:00.2), an SF (mlx5_core.sf.4) or a vDPA device of this node", ids[0].Key, ids[0].ID)
	case device.Virtual && device.Below != "":
		return "it is on " + device.Below + ", which is virtual and has no device: remove devinfo from this network, or attach to an interface of a NIC"
	case device.Virtual:
		return "a bridge, a veth or an interface on top of one has no device: drop strict, or attach an interface of a NIC"
	}
	return "set deviceID (Multus sets it if the network has a k8s.v1.cni.cncf.io/resourceName), or declare the device in deviceInfo"
}

// warnOfOrder logs a warning if devinfo runs before the plugin that creates the interface. In that case the
// deviceID names a function whose interface is still on the host. The later plugin then prints a result of its
// own, and the pciID that devinfo adds is lost. An ADD with delegates runs it itself.
func (r *request) warnOfOrder(device *discovery.Device, info *devinfo.Info) error {
	if device.InNetns || device.SF != "" || len(r.c.Config.DeviceIDs) == 0 || len(r.c.Config.Delegates) > 0 || info.Type != devinfo.TypePCI {
		return nil
	}
	if has, known := r.result.Has(r.c.Attachment.IfName, r.c.Attachment.Netns); has || !known {
		return nil
	}
	address, _ := pci.Parse(info.PCI.Address) // Validate has parsed it
	ports, err := r.c.Finder.Sys.Ports("pci", address.String(), sysfs.FewPorts)
	own := slices.IndexFunc(ports, func(p sysfs.Port) bool { return !link.Represents(p.PortName) })
	if own < 0 { // no interface, for example on vfio-pci
		return err
	}
	r.c.Log.Warn("interface "+r.c.Attachment.IfName+" does not exist yet, and "+ports[own].Name+" of "+info.PCI.Address+" is still in the host network namespace",
		"remedy", "put devinfo after the plugin that creates the interface; otherwise the final result has no pciID")
	return nil
}
