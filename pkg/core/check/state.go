package check

import (
	"errors"
	"fmt"
	"slices"

	"devinfo-cni.io/devinfo"
	"devinfo-cni.io/devinfo/pci"
	"devinfo-cni.io/pkg/core/discovery"
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

// Incomparable reports whether the state rules out a comparison. For Adding that is so because ADD was killed, so the caller
// must hold the entry's lock.
func (s State) Incomparable() bool {
	return slices.Contains([]State{Stale, Corrupt, Newer, Adding, Refused}, s)
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
		return Adding, "ADD runs, or was killed; " + Adding.Remedy()
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
		err = &Error{DeviceLost, fmt.Errorf("%s device %s is not on the node", d.Type, d.ID)}
	}
	return err
}

// Remedy returns the action to take, or "" if there is no general advice.
func (s State) Remedy() string {
	const again = "recreate the pod, or DEL and ADD the attachment"
	const renew = again + ", to write the file again"
	return map[State]string{
		FileMissing: renew,
		BadFile:     renew,
		WrongDevice: again,
		DeviceLost: "restore the device, or delete the pod; devinfo's DEL works without it, but other plugins' may fail: " +
			"sriov-cni's fails once and succeeds when repeated",
		InterfaceLost: again,
		Adding:        "DEL, or the next ADD, cleans up after it",
		Refused:       "the next ADD, DEL or GC replaces or removes this record",
		Stale:         "wait for the runtime's DEL or GC to clean up, or run: devinfoctl gc --yes",
		Corrupt:       "the runtime's DEL or GC removes it",
		Newer:         "install the newer devinfo that wrote it, or a later one",
	}[s]
}

// The remedies of errors that other packages return, too.
const (
	RemedyConflict    = "correct the wrong source; if that is a leftover device-info file, remove it"
	RemedyForeignSpec = "find out which program replaced the attachment's CDI spec; DEL does not remove the new one"
)

// Error is the reason for a state other than OK.
type Error struct {
	State State
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

func (e *Error) Remedy() string {
	switch {
	case errors.As(e.Err, new(*discovery.ConflictError)):
		return RemedyConflict
	case errors.As(e.Err, new(*ForeignSpecError)):
		return RemedyForeignSpec
	}
	return e.State.Remedy()
}
