package plugin

import (
	"encoding/json"
	"fmt"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/config"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/failure"
	"devinfo-cni.io/pkg/core/grant"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/core/result"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/sysfs"
)

// An Addition is one ADD. Its steps are Prepare, Attach and Print.
type Addition struct {
	*Call
	Declared *devinfo.Info  // deviceInfo of the configuration, with placeholders expanded
	Result   *result.Result // the CNI result so far: first the prevResult; nil = none
	File     InfoFile
	wantCDI  *config.CDI // cdi of the configuration; nil = no spec
	spec     journal.CDI

	// Entry is the entry that this ADD recorded last, locked; nil = none. Before commit it is not nil only if delegates
	// have run: they are recorded first.
	Entry *journal.Entry
	// Ran lists the plugins that this ADD has run and that need a DEL if it fails, and Output is the last one's result.
	// They are only set if the network has delegates.
	Ran    []json.RawMessage
	Output json.RawMessage

	former       *journal.Entry // entry of an earlier ADD of this attachment, locked until it is replaced; nil = none
	replaced     *journal.Entry // the former entry, once it is replaced
	restoreFiles func() error   // restores the files of the former entry; nil = none was removed
	original     []byte         // content of the device-info file before this ADD, unless devinfo wrote it; nil = none
}

// Add finds the device, writes the device-info file and, if configured, the CDI spec, and prints the CNI
// result. The doc comment of describe lists where the facts of the file come from.
//
// Add checks as much as it can before it changes anything. Only the cleanup after a former ADD of the attachment
// may come earlier. If a later step fails, Add undoes all its changes.
func Add(c *Call) error {
	a := &Addition{Call: c}
	return a.Do(a.Prepare, a.Attach, a.Print)
}

// Attach finds the device, records the attachment and writes its files.
func (a *Addition) Attach() (err error) {
	var p plan
	if p.device, err = a.Finder.Find(a.Target(a.Declared, a.File.External, a.Result)); err != nil {
		return err
	}
	if p.info, err = a.describe(p.device); err != nil {
		return err
	}
	if p.granted, err = a.grantFor(p.device, p.info); err != nil {
		return err
	}
	if p.leases, err = a.foundLeases(p.device, p.info, p.granted); err != nil {
		return err
	}
	if a.wantCDI != nil {
		if p.spec, err = a.encodeSpec(p.granted, p.info); err != nil {
			return err
		}
	}
	if err := a.commit(p); err != nil {
		return err
	}
	a.extendResult(p)
	return nil
}

func (a *Addition) Print() error {
	if _, err := a.Stdout.Write(slices.Concat(a.Result.JSON(), []byte("\n"))); err != nil {
		return failure.New(failure.IO, fmt.Errorf("print the result: %w", err), "")
	}
	return nil
}

type plan struct {
	device  *discovery.Device
	info    *devinfo.Info // content of the device-info file; nil = no file
	granted grant.Grant
	spec    []byte // the CDI spec; nil = none
	leases  []journal.DeviceLease
}

// describe composes the content of the device-info file. Each fact comes from one of these sources:
//
//   - deviceInfo of the configuration ([attachment.Attachment.Declared]): any key but version.
//   - The kernel, through [discovery.Finder.Find]: pci-address, pf-pci-address, rdma-device (not of vDPA) and
//     representor-device; for vDPA also parent-device, driver and path.
//   - The CNI result, which Find reads too: its socketPath is the path of a socket. The CNI result is the result
//     of the last delegate, else the prevResult.
//   - The device-info file ([Addition.readInfoFile]): any key. The runtime or a delegate wrote it; if neither did,
//     the device plugin's file replaces it. Content that devinfo itself wrote, in a former ADD or for the delegates,
//     is merged into it like Find's facts, if it is about the same device ([InfoFile.Facts]).
//
// [devinfo.Merge] decides by key which source wins. deviceInfo is its declared layer, Find's facts are the found one,
// and the file's facts are the existing one.
//
// Sources that name different devices are an error: Find compares deviceInfo, the deviceIDs, the file unless
// devinfo wrote it, the pciID of the CNI result, and the interface in the pod. Different types in deviceInfo
// and the file are an error too ([Addition.CheckType]). A device that cannot be described is a warning
// with a remedy, or an error if the configuration is strict.
func (a *Addition) describe(device *discovery.Device) (*devinfo.Info, error) {
	for _, w := range device.Warnings {
		a.Log.Warn(w)
	}
	if device.Shared {
		a.Log.Info("the device belongs to the lower interface and is shared with other interfaces")
	}
	info := devinfo.Merge(a.File.Facts(device, a.Declared), device.Info, a.Declared)
	if info == nil || discovery.Identity(info) == "" && device.Problem != nil {
		return nil, a.nothingFound(device)
	}
	violations := info.Validate()
	if err := violations.Err(); err != nil {
		return nil, a.invalid(err, info, device.Problem)
	}
	for _, v := range violations {
		a.Log.Warn(v.String())
	}
	if err := a.unlessStrict(device.Problem); err != nil {
		return nil, err
	}
	declared, merged := a.Declared.Texts(), info.Texts()
	for _, key := range []string{"mode", "role"} { // an existing file's value wins
		if declared[key] != "" && declared[key] != merged[key] {
			a.Log.Warn("keeping the device-info file's value instead of the declared one", "key", string(info.Type)+"."+key, "file", merged[key], "declared", declared[key])
		}
	}
	return info, a.warnOfOrder(device, info)
}

// nothingFound returns the error of an ADD without a device, or logs it as a warning.
func (a *Addition) nothingFound(device *discovery.Device) error {
	problem := device.Problem
	if problem == nil && device.Virtual && !a.Config.Strict && len(a.Config.DeviceIDs) == 0 {
		a.reason = "interface " + a.Attachment.IfName + " is virtual and has no device: not writing a device-info file"
		a.Log.Info(a.reason)
		return nil
	}
	if problem == nil {
		problem = failure.New(failure.NotFound, fmt.Errorf("no device found for interface %s", a.Attachment.IfName), remedyWithoutDevice(device, a.Config.DeviceIDs))
	}
	return a.unlessStrict(problem)
}

func remedyWithoutDevice(device *discovery.Device, ids []config.NamedID) string {
	switch {
	case len(ids) > 0:
		return fmt.Sprintf("%s is %q: it must be the PCI address of a function (0000:3b:00.2), an SF (mlx5_core.sf.4) or a vDPA device of this node", ids[0].Key, ids[0].ID)
	case device.Virtual:
		return "a bridge, a veth or an interface on top of one has no device: drop strict, or attach an interface of a NIC"
	}
	return "set deviceID (Multus sets it if the network has a k8s.v1.cni.cncf.io/resourceName), or declare the device in deviceInfo"
}

// invalid returns the error, or logs the warning, of device information that breaks the specification.
// For a socket it is always an error, because only the configuration can be wrong. For a device it is a warning
// unless the configuration is strict, because the kernel may lack a fact.
func (a *Addition) invalid(err error, info *devinfo.Info, problem error) error {
	if problem != nil {
		return a.unlessStrict(problem)
	}
	err = failure.New(failure.InvalidInfo, err, "correct it with deviceInfo in the configuration; no file was written")
	if discovery.IsSocket(info.Type) {
		return err
	}
	return a.unlessStrict(err)
}

// warnOfOrder logs a warning if devinfo runs before the plugin that creates the interface. In that case the
// deviceID names a function whose interface is still on the host. The later plugin then prints a result of its
// own, and the pciID that devinfo adds is lost. An ADD that has recorded its attachment before runs plugins itself.
func (a *Addition) warnOfOrder(device *discovery.Device, info *devinfo.Info) error {
	if device.InNetns || device.SF != "" || len(a.Config.DeviceIDs) == 0 || a.Entry != nil || info.Type != devinfo.TypePCI {
		return nil
	}
	if has, known := a.Result.Has(a.Attachment.IfName, a.Attachment.Netns); has || !known {
		return nil
	}
	address, _ := pci.Parse(info.PCI.Address) // Validate has parsed it
	fn, ok, err := a.Finder.Sys.PCI(address)
	if err != nil || !ok {
		return err
	}
	ports, err := a.Finder.Sys.Ports(fn)
	own := slices.IndexFunc(ports, func(p sysfs.Port) bool { return !link.Represents(p.PortName) })
	if own < 0 { // no interface, for example on vfio-pci
		return err
	}
	a.Log.Warn("interface "+a.Attachment.IfName+" does not exist yet, and "+ports[own].Name+" of "+info.PCI.Address+" is still in the host network namespace",
		"remedy", "put devinfo after the plugin that creates the interface; otherwise the final result has no pciID")
	return nil
}

// extendResult adds the device's pciID or socketPath to the CNI result, and a sandboxed interface if Multus needs one.
func (a *Addition) extendResult(plan plan) {
	first := a.Result == nil
	if first {
		a.Result = result.New(a.Config.CNIVersion)
	}
	if first || a.File.Name != "" && plan.info != nil {
		a.Result.EnsureSandboxed(a.Attachment.IfName, a.Attachment.Netns)
	}
	texts := plan.info.Texts()
	pciID, socket := texts["pci-address"], ""
	if plan.info != nil && discovery.IsSocket(plan.info.Type) {
		pciID, socket = "", texts["path"]
	} else if plan.device.SF != "" && !a.Config.SubfunctionParent {
		pciID = "" // the parent's address, which does not identify the sub-function
	}
	a.Result.Identify(a.Attachment.IfName, a.Attachment.Netns, pciID, socket)
}
