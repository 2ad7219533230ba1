package check

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/pkg/core/cdispec"
	"devinfo-cni.io/pkg/core/discovery"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/link"
	"devinfo-cni.io/pkg/host/store"
	"devinfo-cni.io/pkg/host/sysfs"
)

// Compare compares an attachment's journal entry with its device-info file (e.Path(), if e.Wrote), its CDI spec
// and the host. The target is the requested device: CHECK builds it from the configuration, other callers use
// [Target]. Compare fills in Target.Existing.
func (c *Checker) Compare(e *journal.Entry, t discovery.Target) *Report {
	r := &Report{Facts: []Item{}}
	c.compare(r, e, t)
	return r
}

func (c *Checker) compare(r *Report, e *journal.Entry, t discovery.Target) {
	t.Existing = c.file(r, e)
	device, alone := c.device(r, e, t)
	c.spec(r, e.CDI)
	r.facts(e, t, device, alone)
	if names := Delegates(e); len(names) > 0 {
		r.NotCompared = append(r.NotCompared, "interfaces made by the delegates ("+strings.Join(names, ", ")+"); their own CHECK compares them")
	}
	if !e.Wrote && e.Device.ID == "" {
		r.NotCompared = append(r.NotCompared, "the device: ADD found none to describe")
	}
}

// Delegates returns the types of the plugins that ADD ran, in order.
func Delegates(e *journal.Entry) (types []string) {
	for _, raw := range e.Delegates {
		var child struct{ Type string }
		_ = json.Unmarshal(raw, &child) // valid JSON, because ADD has run it
		types = append(types, child.Type)
	}
	return types
}

func (c *Checker) file(r *Report, e *journal.Entry) *devinfo.Info {
	if !e.Wrote {
		return nil
	}
	info, err := c.Dir(e.Dir).Info(e.File)
	r.written(Item{Fact: "device-info file", Journal: "written"}, e.Path(), err)
	if err != nil {
		return nil
	}
	for _, v := range info.Validate().Warnings() {
		r.Warnings = append(r.Warnings, v.String())
	}
	return info
}

// written adds the row of a file that ADD has written, whose read has returned err.
func (r *Report) written(row Item, path string, err error) {
	switch {
	case err == nil:
		row.File, row.Verdict = "there", Same
	case errors.Is(err, fs.ErrNotExist):
		row.File, row.Verdict = "gone", Gone
		r.fail(&Error{FileMissing, fmt.Errorf("%s %s is gone", row.Fact, path)})
	case errors.Is(err, fs.ErrPermission):
		row.File, row.Verdict = "not readable", Unseen
		r.couldNotRead(err, row.Fact+" "+path+": reading it takes root")
	case errors.As(err, new(syscall.Errno)): // not the file's fault
		row.File, row.Verdict = "not readable", Unseen
		r.couldNotRead(err, row.Fact+" "+err.Error())
	case errors.As(err, new(*ForeignSpecError)):
		row.File, row.Verdict = "not devinfo's", Differs
		r.fail(&Error{BadFile, err})
	default:
		row.File, row.Verdict = "not valid", Differs
		r.fail(&Error{BadFile, fmt.Errorf("%s %w", row.Fact, err)})
	}
	r.Facts = append(r.Facts, row)
}

// device searches for the device again, with the file as a source, so a file that names another device causes a
// conflict. device is nil if the search failed. alone is the result without the file; it is nil unless Explain
// is set.
func (c *Checker) device(r *Report, e *journal.Entry, t discovery.Target) (device, alone *discovery.Device) {
	problem := checkRecorded(e, t)
	if problem == nil {
		device, problem = c.found(r, e, &t)
	}
	if problem != nil {
		r.fail(problem)
	}
	if c.Explain {
		alone = c.findWithoutFile(r, t)
	}
	return device, alone
}

// findWithoutFile searches for the device by the interface, else by the recorded request. It ignores errors, because the
// search with the file has reported them.
func (c *Checker) findWithoutFile(r *Report, t discovery.Target) *discovery.Device {
	bare := discovery.Target{Netns: t.Netns, IfName: t.IfName, FollowLower: t.FollowLower, SubfunctionParent: t.SubfunctionParent}
	if device, err := c.find(r, &bare); err == nil && device.Info != nil {
		return device
	}
	t.Netns, t.Existing = bare.Netns, nil
	device, _ := c.Finder.Find(t)
	return device
}

func checkRecorded(e *journal.Entry, t discovery.Target) *Error {
	file, mismatch := t.Existing, func(format string, args ...any) *Error {
		return &Error{WrongDevice, fmt.Errorf("the device-info file "+format, args...)}
	}
	switch {
	case file == nil:
	case t.Declared != nil && t.Declared.Type != "" && t.Declared.Type != file.Type:
		return mismatch("has type %q, deviceInfo declares %q", file.Type, t.Declared.Type)
	case e.Device.Type != "" && string(file.Type) != e.Device.Type:
		return mismatch("has type %q, but ADD found the %s device %s", file.Type, e.Device.Type, e.Device.ID)
	case named(file.Type) && e.Device.ID != "" && discovery.Identity(file) != e.Device.ID:
		return mismatch("names %s, but ADD found %s", discovery.Identity(file), e.Device.ID)
	}
	return nil
}

// named reports whether devices of type t have a name in the kernel. Sockets only have a path in the container.
func named(t devinfo.Type) bool { return t == devinfo.TypePCI || t == devinfo.TypeVDPA }

// found removes the network namespace from the target if it may not be entered.
func (c *Checker) found(r *Report, e *journal.Entry, t *discovery.Target) (*discovery.Device, *Error) {
	device, err := c.find(r, t)
	switch {
	case errors.As(err, new(*discovery.ConflictError)):
		return nil, &Error{WrongDevice, err}
	case errors.Is(err, link.ErrNoNetns):
		return nil, &Error{Stale, err}
	case err != nil:
		return nil, &Error{Unknown, err}
	}
	r.Warnings = append(r.Warnings, device.Warnings...)
	var changed *Error
	if e.InNetns && t.Netns != "" || device.InNetns {
		changed = c.compareInterface(r, e, t, device)
	}
	info, gone := device.Info, new(Error)
	switch {
	// A missing device comes before a changed interface, because an interface disappears with its device.
	case (t.Existing != nil || e.Device.ID != "") && errors.As(device.Problem, new(*discovery.MissingError)):
		return device, &Error{DeviceLost, device.Problem}
	case info == nil && errors.As(c.checkDeviceExists(e.Device), &gone): // only the journal names the device
		return device, gone
	case changed != nil:
		return device, changed
	case t.Existing == nil && e.Device.ID != "" && info != nil && named(info.Type) && discovery.Identity(info) != e.Device.ID:
		return device, &Error{WrongDevice, fmt.Errorf("ADD found the %s device %s, but now it is the %s device %s",
			e.Device.Type, e.Device.ID, info.Type, discovery.Identity(info))}
	}
	if device.Problem != nil && t.Existing != nil {
		r.Warnings = append(r.Warnings, device.Problem.Error())
	}
	return device, nil
}

// find calls Finder.Find. If the network namespace may not be entered, it repeats the search without it.
func (c *Checker) find(r *Report, t *discovery.Target) (*discovery.Device, error) {
	device, err := c.Finder.Find(*t)
	if t.Netns == "" || !errors.Is(err, fs.ErrPermission) {
		return device, err
	}
	r.skipNetns(t, err)
	return c.Finder.Find(*t)
}

// compareInterface adds the fact "interface". The interface must exist if ADD found it.
//
// It counts as replaced if it no longer leads to the device, and the kernel now reports another parent device
// or kind. It does not count as replaced in three cases: while the kernel reports neither, as during a driver
// reset; if it is still a macvlan, whose lower interface may be invisible; and if it is a dummy while the node
// has no interface of the device, because KubeVirt renames the pod's interface and puts a dummy in its place.
func (c *Checker) compareInterface(r *Report, e *journal.Entry, t *discovery.Target, device *discovery.Device) (problem *Error) {
	row := Item{Fact: "interface", Now: t.IfName, Source: t.Netns, Verdict: Same}
	if e.InNetns {
		row.Journal = t.IfName
	}
	switch is := device.Interface; {
	case !device.InNetns:
		row.Now, row.Verdict = "", Gone
		problem = &Error{InterfaceLost, fmt.Errorf("interface %s is no longer in %s, where ADD found it", t.IfName, t.Netns)}
	case !device.ReachedFromInterface && e.Interface != "" && is != "" && is != e.Interface:
		ports, _ := c.Finder.Sys.Ports("pci", e.Interface, sysfs.FewPorts)
		if is == "dummy" && len(ports) == 0 {
			break
		}
		row.Verdict = Differs
		where := ""
		if len(ports) > 0 {
			where = fmt.Sprintf("; %s has the interface %s on the node", e.Interface, ports[0].Name)
		}
		problem = &Error{WrongDevice, fmt.Errorf("interface %s in %s was replaced: at ADD it was %q, and now it is %q%s", t.IfName, t.Netns, e.Interface, is, where)}
	}
	r.Facts = append(r.Facts, row)
	return problem
}

// Target returns the device that ADD was requested for, without the device-info file. If the error says that the
// recorded deviceInfo is invalid, the rest of the target is still usable.
func Target(e *journal.Entry) (discovery.Target, error) {
	requested := e.Requested
	t := discovery.Target{
		DeviceIDs: requested.DeviceIDs, Netns: e.Netns, IfName: e.IfName, PCIID: requested.PCIID, SocketPath: requested.SocketPath,
		FollowLower: requested.FollowLower, SubfunctionParent: requested.SubfunctionParent,
	}
	if requested.Declared == nil {
		return t, nil
	}
	declared, err := devinfo.Parse(requested.Declared)
	if err != nil {
		return t, fmt.Errorf("journal entry of %s: recorded deviceInfo: %w", e.Key, err)
	}
	t.Declared = declared
	return t, nil
}

// ForeignSpecError is the error for a CDI spec that devinfo did not write.
type ForeignSpecError struct{ Path string }

func (e *ForeignSpecError) Error() string { return e.Path + ": CDI spec not written by devinfo" }

// ReadSpec returns an error unless the file has a CDI spec that devinfo wrote: fs.ErrNotExist if it is missing, or blank, as
// after a power failure, and a [*ForeignSpecError] if another program wrote it.
func ReadSpec(dir *store.Dir, file string) error {
	text, err := dir.Read(file)
	switch {
	case err != nil:
		return err
	case len(bytes.TrimSpace(text)) == 0:
		return fs.ErrNotExist
	case !cdispec.IsDevinfoSpec(text, file):
		return &ForeignSpecError{dir.Path(file)}
	}
	return nil
}

func (c *Checker) spec(r *Report, cdi journal.CDI) {
	if cdi.File != "" {
		path := filepath.Join(cdi.Dir, cdi.File)
		r.written(Item{Fact: "CDI spec", Journal: cdi.Device, Source: path}, path, ReadSpec(c.Dir(cdi.Dir), cdi.File))
	}
}
