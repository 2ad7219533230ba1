package check

import (
	"errors"
	"fmt"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/journal"
	"devinfo-cni.io/pkg/host/store"
)

// State is the state of an attachment, in one word. Tables and JSON print it as it is.
type State string

const (
	OK            State = "Ok"            // the network namespace, the device and the files exist
	Adding        State = "Adding"        // ADD is running, or was killed
	Refused       State = "Refused"       // ADD was refused, because another holder has the device
	FileMissing   State = "FileMissing"   // the device-info file or the CDI spec that ADD wrote is missing
	BadFile       State = "FileInvalid"   // the file exists, but its content cannot be from ADD
	DeviceLost    State = "DeviceGone"    // the device that ADD found is not on the node
	WrongDevice   State = "WrongDevice"   // the file names another device, or the interface was replaced
	InterfaceLost State = "InterfaceGone" // the interface is not in the network namespace
	Stale         State = "Stale"         // the network namespace is gone or the node has rebooted, and no DEL succeeded
	Corrupt       State = "Corrupt"       // the journal entry cannot be read
	Newer         State = "NewerFormat"   // a newer devinfo wrote the entry
	Unknown       State = "Unknown"       // the entry, or something to compare, cannot be read

	// States of attachments by cni-dra-driver. A Checker returns only Deleting.
	Prepared  State = "Prepared"  // the pod has no sandbox yet
	Deleting  State = "Deleting"  // DEL is running, will be retried, or its device is being restored
	Undeleted State = "Undeleted" // DEL failed too often; the driver no longer retries it
)

// Incomparable returns the kind of problem if the state rules out a comparison. For Adding the problem is that
// ADD was killed, so the caller must hold the entry's lock.
func (s State) Incomparable() (kind Kind, over bool) {
	kind, over = map[State]Kind{Stale: ContainerGone, Corrupt: EntryInvalid, Newer: EntryNewer, Adding: Unfinished, Refused: NotAdded}[s]
	return kind, over
}

// State returns the state of an attachment, determined without a comparison, and the reason unless the state is
// OK. [Checker.Check] does the comparison. e and err are the results of [journal.Journal.Get]; e is nil only with
// an error. The most serious state wins: a stale attachment may also lack its files.
func (c *Checker) State(e *journal.Entry, err error) (state State, why string) {
	switch {
	case errors.As(err, new(*journal.FormatError)):
		return Newer, err.Error()
	case errors.As(err, new(*store.CorruptError)), errors.Is(err, store.ErrTooLarge):
		return Corrupt, err.Error()
	case err != nil:
		return Unknown, err.Error()
	}
	why, err = c.Journal.Stale(e)
	switch {
	case errors.Is(err, journal.ErrDelPending):
		return Deleting, ""
	case why != "":
		return Stale, why
	case e.Refused != "":
		return Refused, "ADD was refused: another pod or a claim had device " + journal.DeviceName(e.Refused)
	case !e.Complete: // err does not matter, because an incomplete entry has nothing to compare yet
		return Adding, "ADD runs, or was killed; " + Unfinished.Remedy()
	case err != nil:
		return Unknown, err.Error()
	}
	switch err := c.checkDeviceExists(e.Device); {
	case errors.As(err, new(*Error)):
		return DeviceLost, err.Error()
	case err != nil:
		return Unknown, err.Error()
	}
	return OK, ""
}

// checkDeviceExists returns an [*Error] if the device is not on the node. It accepts any socket, whose path is valid
// only in the container.
func (c *Checker) checkDeviceExists(d journal.Identity) error {
	bus := d.Type
	if !named(devinfo.Type(bus)) || d.ID == "" {
		return nil
	}
	if _, err := pci.Parse(d.ID); err == nil { // only the PCI address of a vDPA device may be known
		bus = string(devinfo.TypePCI)
	}
	_, there, err := c.Finder.Sys.Inode(bus, d.ID)
	if err == nil && !there {
		err = &Error{DeviceGone, fmt.Errorf("%s device %s is not on the node", d.Type, d.ID)}
	}
	return err
}

type Kind int

const (
	Unreadable     Kind = iota // the kernel or netlink returned an error, which is Err
	FileGone                   // the device-info file is missing
	FileInvalid                // the file breaks the specification or has another major version
	FileUnreadable             // the file exists but cannot be read
	SpecGone                   // the CDI spec is missing
	SpecForeign                // another program replaced the CDI spec
	Mismatch                   // the file does not describe the device that ADD found or the configuration declares
	OtherDevice                // ADD found another device, or the interface was replaced
	Conflict                   // two sources name different devices: a [*discovery.ConflictError]
	DeviceGone                 // the device is not on the node
	InterfaceGone              // the interface is not in the network namespace
	Unfinished                 // ADD was killed
	NotAdded                   // ADD was refused, because another holder has the device
	ContainerGone              // the network namespace is missing, or the node has rebooted
	EntryInvalid               // the journal entry cannot be read
	EntryNewer                 // a newer devinfo wrote the journal entry
)

// Remedy returns the action to take, or "" if there is no general advice.
func (k Kind) Remedy() string { return kinds[k].remedy }

const (
	again = "recreate the pod, or DEL and ADD the attachment"
	renew = again + ", to write the file again"
)

var kinds = map[Kind]struct {
	state  State
	remedy string
}{
	Unreadable:     {Unknown, ""},
	FileGone:       {FileMissing, renew},
	FileInvalid:    {BadFile, renew},
	FileUnreadable: {BadFile, renew},
	SpecGone:       {FileMissing, renew},
	SpecForeign:    {BadFile, "find out which program replaced the attachment's CDI spec; DEL does not remove the new one"},
	Mismatch:       {WrongDevice, renew},
	OtherDevice:    {WrongDevice, again},
	Conflict:       {WrongDevice, "correct the wrong source; if that is a leftover device-info file, remove it"},
	DeviceGone: {DeviceLost, "restore the device, or delete the pod; devinfo's DEL works without it, but other plugins' may fail: " +
		"sriov-cni's fails once and succeeds when repeated"},
	InterfaceGone: {InterfaceLost, again},
	Unfinished:    {Adding, "DEL, or the next ADD, cleans up after it"},
	NotAdded:      {Refused, "the next ADD, DEL or GC replaces or removes this record"},
	ContainerGone: {Stale, "wait for the runtime's DEL or GC to clean up, or run: devinfoctl gc --yes"},
	EntryInvalid:  {Corrupt, "the runtime's DEL or GC removes it"},
	EntryNewer:    {Newer, "install the newer devinfo that wrote it, or a later one"},
}

type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string  { return e.Err.Error() }
func (e *Error) Unwrap() error  { return e.Err }
func (e *Error) Remedy() string { return e.Kind.Remedy() }
